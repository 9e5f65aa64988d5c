"""A run's tracking as a field of a configuration: what YAML and the command line may say, and what is said back."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing

import draccus
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import trackway
from trackway.backends.noop import NoopConfig
from trackway.config import TrackerConfig, Trackers, TrackingConfig
from trackway.errors import ConfigError
from trackway.testing import RecordingTracker


@dataclasses.dataclass
class Trainer:
    """What a user embeds a run's tracking in."""

    tracking: TrackingConfig = dataclasses.field(default_factory=TrackingConfig)
    optional: TrackingConfig | None = None
    steps: int = 10


@dataclasses.dataclass
class Program:
    """The outermost config class of a program."""

    trainer: Trainer = dataclasses.field(default_factory=Trainer)


def decoded(text):
    """The tracking that *text*, in YAML, says in a program's file."""
    return draccus.decode(Program, {"trainer": {"tracking": yaml.safe_load(text)}}).trainer.tracking


def types(tracking):
    """The type names of the trackers."""
    return [TrackerConfig.get_choice_name(type(config)) for config in tracking.trackers]


FILE = """
trainer:
  tracking:
    run_id: from-file
    trackers:
      - type: recording
        project: from-file
      - type: noop
"""


@pytest.fixture
def parse(recording, tmp_path):
    """Parses arguments over FILE."""
    path = tmp_path / "config.yaml"
    path.write_text(FILE)

    def parse(*args):
        return draccus.parse(Program, args=["--config_path", str(path), *args], exit_on_error=False).trainer

    return parse


def test_its_fields_are_the_parameters_of_start():
    """What a file can say is what `start` takes, with the same defaults; the rest is of the moment."""
    parameters = inspect.signature(trackway.start).parameters
    fields = {field.name: field for field in dataclasses.fields(TrackingConfig)}
    assert set(parameters) - {"resume_state", "config"} == set(fields)
    for name in set(fields) - {"trackers", "events"}:
        assert fields[name].default == parameters[name].default, name
    assert [name for name in parameters if name in fields] == list(fields)


def test_the_choices_are_those_that_start_takes():
    """Both spell out the same words for `resume` and `step_policy`."""
    of_start = typing.get_type_hints(trackway.start)
    of_config = typing.get_type_hints(TrackingConfig)
    for name in ("resume", "step_policy"):
        assert typing.get_args(of_start[name]) == typing.get_args(of_config[name])


def test_defaults_are_a_run_directory_alone():
    """Without a word the run is kept locally."""
    assert types(TrackingConfig()) == ["local"]
    assert TrackingConfig().store is True
    assert TrackingConfig(trackers=None) == TrackingConfig()
    assert TrackingConfig(trackers=NoopConfig()) == TrackingConfig(Trackers([NoopConfig()]))


def test_every_field_can_be_given_in_yaml(recording, tmp_path):
    """Each field is read from a file."""
    said = decoded(
        f"{{trackers: [recording], run_id: a, dir: {tmp_path}, resume: must, step_policy: allow, print: true, "
        "strict_json: true, store: true}"
    )
    assert said == TrackingConfig(Trackers([recording()]), "a", str(tmp_path), "must", "allow", True, True, True)


@pytest.mark.parametrize("text", ["{}", "null"])
def test_nothing_said_is_the_default(text):
    """An empty mapping, or null, leaves every field at its default."""
    assert decoded(text) == TrackingConfig()


def test_an_optional_field_stays_none():
    """A field that may be None is None where the file says null, and otherwise read like any other."""
    read = [draccus.decode(Program, {"trainer": {"optional": value}}).trainer.optional for value in (None, {})]
    assert read == [None, TrackingConfig()]


ERRORS = [
    ("{trackerss: noop}", ".trackerss: unknown field of tracking; did you mean trackers?"),
    ("{every_steps: 5}", ".every_steps: unknown field of tracking; its fields are trackers, run_id, dir"),
    ("{every_steps: 5}", "every_steps is a field of trackers: put it into `trackers`"),
    ("{type: noop}", "type is a field of trackers"),
    ("{zzz: 1, yyy: 2}", "(unknown, too: yyy)"),
    (
        "{trackers: [{type: noop}, {type: recording, projct: x}]}",
        ".trackers[1].projct: unknown field of recording; did",
    ),
    ("{trackers: [{type: recording, count: many}]}", ".trackers[0].count: expected an integer or null, got 'many'"),
    ("{trackers: 5}", ".trackers: expected a mapping, a list of mappings or a tracker type, got 5"),
    ("{trackers: nop}", ".trackers.type: unknown tracker type 'nop'; did you mean noop?"),
    ("{run_id: ../x}", ": run_id '../x' holds '/'"),
    ("{run_id: [a]}", ".run_id: expected text or null, got ['a']"),
    ("{dir: ''}", ": dir must be a folder such as 'runs', or null, got ''"),
    ("{resume: maybe}", ".resume: expected one of allow, must, never, got 'maybe'"),
    ("{step_policy: null}", ".step_policy: expected one of monotonic, allow, error, got null"),
    ("{print: sometimes}", ".print: expected true or false, got 'sometimes'"),
    ("{print: null}", ".print: expected true or false or a callable, got null"),
    ("{strict_json: 1.5}", ".strict_json: expected true or false, got 1.5"),
    ("{store: null}", ".store: expected true or false, got null"),
    ("{store: false, resume: must}", ": resume: must needs the run directory, which store: false opts out of"),
    (
        "{store: false, trackers: {type: local, label: mine}}",
        ": store: false opts out of the run directory, which trackers (local) asks for",
    ),
    ("{trackers: [local, noop, local]}", ": trackers[0] (local) and trackers[2] (local) are two run directories"),
    ("{trackers: {type: local, every_steps: 2}}", ": trackers (local): every_steps: 2 is not for the run directory"),
    ("{dir: a, trackers: {type: local, dir: b}}", ": dir is 'a', and that of local 'b'; leave one of them out"),
    ("5", ": expected a mapping such as {trackers: "),
    ("[noop]", ": expected a mapping such as {trackers: "),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_an_error_names_the_whole_path_and_the_cure(recording, text, message):
    """The message begins with the path, in one line, and holds what was got and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        decoded(text)
    said = str(caught.value)
    assert said.startswith("trainer.tracking")
    assert message in said
    assert "\n" not in said
    assert isinstance(caught.value, draccus.ParsingError)


def test_fields_are_overridden_one_by_one(parse):
    """Arguments win over the file's fields, and the others stay."""
    tracking = parse("--trainer.tracking.run_id", "cli", "--trainer.tracking.print", "true").tracking
    assert (tracking.run_id, tracking.print, types(tracking)) == ("cli", True, ["recording", "noop"])
    assert tracking.trackers[0].project == "from-file"


@pytest.mark.parametrize(
    ("argument", "expected"),
    [("noop", ["noop"]), ("{type: noop}", ["noop"]), ("[noop, {type: console}]", ["noop", "console"]), ("[]", [])],
)
def test_trackers_on_the_command_line_replace_those_of_the_file(parse, argument, expected):
    """One argument replaces the whole list, in every form that YAML takes."""
    tracking = parse("--trainer.tracking.trackers", argument, "--trainer.tracking.store", "false").tracking
    assert types(tracking) == expected
    assert (tracking.run_id, tracking.store) == ("from-file", False)


def test_an_error_on_the_command_line_has_the_path(parse):
    """What is wrong in an argument is told like what is wrong in a file."""
    with pytest.raises(draccus.ParsingError, match=r"trainer\.tracking\.trackers\[1\]\.projct: unknown field"):
        parse("--trainer.tracking.trackers", "[noop, {type: recording, projct: x}]")
    with pytest.raises(draccus.utils.DraccusException, match="unrecognized arguments"):
        parse("--trainer.tracking.runid", "x")


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z]", fullmatch=True).filter(lambda name: name not in {"con", "nul"})


@given(
    st.builds(
        TrackingConfig,
        trackers=st.lists(st.builds(NoopConfig, label=st.none() | NAMES), max_size=2).map(Trackers),
        run_id=st.none() | NAMES,
        dir=st.none() | NAMES,
        resume=st.sampled_from(["allow", "never"]),
        step_policy=st.sampled_from(["monotonic", "allow", "error"]),
        print=st.booleans(),
        strict_json=st.booleans(),
        store=st.booleans(),
    )
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_can_be_read_back(tracking):
    """Whatever the fields hold, encoding and decoding by way of YAML is the identity, alone and inside a program."""
    written = yaml.safe_load(yaml.safe_dump(draccus.encode(tracking)))
    assert draccus.decode(TrackingConfig, written) == tracking
    program = Program(Trainer(tracking, optional=tracking))
    assert draccus.loads(Program, draccus.dump(program)) == program


def test_trackers_keep_their_type_when_written():
    """The written list names the type of each tracker."""
    written = draccus.encode(Program(Trainer(TrackingConfig(Trackers([NoopConfig()])))))
    assert [one["type"] for one in written["trainer"]["tracking"]["trackers"]] == ["noop"]


def test_a_callable_print_is_written_as_true():
    """No file can hold a function; what is read back prints in the usual way."""
    written = draccus.encode(TrackingConfig(print=lambda line: None))
    assert written["print"] is True
    assert draccus.decode(TrackingConfig, written).print is True


def test_it_can_be_copied_and_becomes_plain_dicts():
    """A deep copy and a pickle are equal to the original, and dataclasses.asdict takes it."""
    tracking = TrackingConfig(Trackers([NoopConfig(label="quiet")]), run_id="a")
    assert copy.deepcopy(tracking) == tracking
    assert pickle.loads(pickle.dumps(tracking)) == tracking
    assert dataclasses.asdict(tracking)["trackers"][0]["label"] == "quiet"
    assert dataclasses.replace(tracking, run_id="b").run_id == "b"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("trackers", "noop", r"trackers must be a TrackerConfig or a Tracker, got 'noop' \(str\)"),
        ("trackers", [NoopConfig(), 3], r"trackers\[1\] must be a TrackerConfig or a Tracker, got 3 \(int\)"),
        ("trackers", [RecordingTracker()], r"must be TrackerConfigs, got a Tracker, .*; give it to `start"),
        ("run_id", 5, "run_id must be text, got 5"),
        ("dir", 5, "dir must be a folder such as 'runs', or null, got 5"),
        ("resume", "alow", "resume must be one of allow, must, never, got 'alow'; did you mean allow?"),
        ("step_policy", True, "step_policy must be one of monotonic, allow, error, got true"),
        ("print", "yes", "print must be true, false or a callable that takes a line of text, got 'yes'"),
        ("strict_json", 1, "strict_json must be true or false, got 1"),
        ("store", None, "store must be true or false, got null"),
    ],
)
def test_a_wrong_value_in_python_is_refused_alike_by_both(field, value, message):
    """The class and `start` say the same of a value that no type checker has seen, and nothing is started."""
    with pytest.raises(ConfigError, match=message):
        TrackingConfig(**{field: value})
    if not message.startswith("must be TrackerConfigs"):
        with pytest.raises(ConfigError, match=message):
            trackway.start(**{field: value})
