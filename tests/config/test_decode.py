"""What YAML may say, and what is said back where it is wrong."""

from __future__ import annotations

import dataclasses

import draccus
import pytest
import yaml

from trackway.backends.noop import NoopConfig
from trackway.config import TrackerConfig, Trackers
from trackway.errors import ConfigError
from trackway.tracker import BackgroundPolicy


def decoded(program, tracker):
    """The trackers that *tracker*, a text of YAML, says in a program's file."""
    return draccus.decode(program, {"trainer": {"tracker": yaml.safe_load(tracker)}}).trainer.tracker


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("{type: noop}", ["noop"]),
        ("[{type: noop}, {type: recording, project: x}]", ["noop", "recording"]),
        ("noop", ["noop"]),
        ("[noop, {type: recording}]", ["noop", "recording"]),
        ("[]", []),
        ("null", []),
    ],
)
def test_one_mapping_a_list_a_bare_type_and_nothing_are_trackers(program, text, types):
    """All forms that the field takes give a Trackers of the configs that they say."""
    trackers = decoded(program, text)
    assert isinstance(trackers, Trackers)
    assert [TrackerConfig.get_choice_name(type(config)) for config in trackers] == types


def test_without_a_type_it_is_local(program):
    """A mapping without type is a config of the default type."""
    assert [type(config).__name__ for config in decoded(program, "{every_steps: 5}")] == ["LocalConfig"]


def test_the_default_is_one_local_tracker():
    """Trackers() keeps a local record without being asked to."""
    assert [type(config).__name__ for config in Trackers()] == ["LocalConfig"]
    assert len(Trackers([])) == 0


def test_one_config_may_be_given_alone():
    """Trackers(config) is a Trackers of that one."""
    assert Trackers(NoopConfig()) == Trackers([NoopConfig()])


def test_a_trainer_with_trackers_becomes_plain_dicts(program):
    """dataclasses.asdict, which remakes every tuple, takes a trainer's config."""
    config = program()
    config.trainer.tracker = Trackers([NoopConfig(label="quiet")])
    assert dataclasses.asdict(config)["trainer"]["tracker"][0]["label"] == "quiet"


ERRORS = [
    ("[{type: noop}, {type: recording, projct: x}]", "[1].projct: unknown field of recording; did you mean project?"),
    ("{type: recording, projct: x}", ".projct: unknown field of recording; did you mean project?"),
    ("{type: recording, zzz: 1, yyy: 2}", ".zzz: unknown field of recording; its fields are project, count"),
    ("{type: recording, zzz: 1, yyy: 2}", "(unknown, too: yyy)"),
    ("[{type: recording, count: many}]", "[0].count: expected an integer or null, got 'many'"),
    ("[{type: recording, count: 1.5}]", "[0].count: expected an integer or null, got 1.5"),
    ("[{type: recording, count: true}]", "[0].count: expected an integer or null, got true"),
    ("[{type: recording, rate: fast}]", "[0].rate: expected a number, got 'fast'"),
    ("[{type: recording, rate: null}]", "[0].rate: expected a number, got null"),
    ("[{type: recording, tags: one}]", "[0].tags: expected a list of text, got 'one'"),
    ("[{type: recording, tags: [a, {b: 1}]}]", "[0].tags[1]: expected text, got {'b': 1}"),
    ("[{type: recording, project: [a]}]", "[0].project: expected text or null, got ['a']"),
    ("[{type: recording, extra: [a]}]", "[0].extra: expected a mapping, got ['a']"),
    ("{type: recording, prefix: true}", ".prefix: expected text, got true"),
    ("{type: recording, ranks: some}", ".ranks: expected one of primary, all, got 'some'"),
    ("{type: recording, every_steps: 0}", ": every_steps must be an integer of at least 1, got 0"),
    ("{type: recording, include: train/*}", ".include: expected a list of text, got 'train/*'"),
    ("{type: recording, background: {queue_sizee: 5}}", ".background.queue_sizee: unknown field of background; did"),
    ("{type: recording, background: {queue_size: 0}}", ".background: BackgroundPolicy.queue_size must be greater"),
    ("{type: recording, background: soon}", ".background: expected true, false or a mapping such as"),
    ("{type: nop}", ".type: unknown tracker type 'nop'; did you mean noop? known types: "),
    ("{type: 5}", ".type: a tracker's type must be text, got 5"),
    ("{type: null}", ".type: a tracker's type must be text, got null"),
    ("''", ".type: unknown tracker type ''"),
    ("5", ": expected a mapping, a list of mappings or a tracker type, got 5"),
    ("[5]", "[0]: expected a mapping such as {type: noop}, or a tracker type, got 5"),
    ("[null]", "[0]: expected a mapping such as {type: noop}, or a tracker type, got null"),
    ("{1: 2, type: noop}", "[1]: unknown field of noop"),
    ("{project: x}", ".project: unknown field of local, which is assumed because no type is given"),
    ("{count: 3}", "count is a field of recording: add `type`"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_an_error_names_the_whole_path_and_the_cure(program, text, message):
    """The message begins with the path, in one line, and holds what was got and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        decoded(program, text)
    said = str(caught.value)
    assert said.startswith("trainer.tracker")
    assert message in said
    assert "\n" not in said
    assert isinstance(caught.value, draccus.ParsingError)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("single", {"type": "recording", "projct": 1}, "trainer.single.projct"),
        ("optional", {"type": "recording", "projct": 1}, "trainer.optional.projct"),
        ("optional_list", [{"type": "recording", "projct": 1}], "trainer.optional_list[0].projct"),
        ("plain_list", ["noop", {"type": "recording", "projct": 1}], "trainer.plain_list[1].projct"),
    ],
)
def test_every_kind_of_field_has_the_path_in_its_error(program, field, value, path):
    """Plain, optional and list annotations give the same one-line message as Trackers."""
    with pytest.raises(ConfigError, match="did you mean project") as caught:
        draccus.decode(program, {"trainer": {field: value}})
    assert str(caught.value) == f"{path}: unknown field of recording; did you mean project?"


@pytest.mark.parametrize("field", ["optional", "optional_list"])
def test_optional_fields_stay_none(program, field):
    """A field that may be None is None where the file says null."""
    assert getattr(draccus.decode(program, {"trainer": {field: None}}).trainer, field) is None


def test_a_field_of_one_config_class_takes_only_that(recording):
    """Where a concrete class is asked for, its own type may be given or left out, and no other."""
    assert draccus.decode(recording, {"project": "x"}) == recording(project="x")
    assert draccus.decode(recording, {"type": "recording", "project": "x"}) == recording(project="x")
    with pytest.raises(ConfigError, match="expected the type of RecordingConfig, got 'noop'"):
        draccus.decode(recording, {"type": "noop"})


def test_a_required_field_that_is_missing_is_named(registry):
    """A plugin's field without default has to be given."""

    @TrackerConfig.register_subclass("strict")
    @dataclasses.dataclass
    class StrictConfig(NoopConfig):
        url: str = dataclasses.field(kw_only=True)

    with pytest.raises(ConfigError, match=r"tracker\.url: is missing; text has to be given"):
        draccus.decode(Trackers, {"type": "strict"})
    assert draccus.decode(Trackers, {"type": "strict", "url": "x"}) == Trackers([StrictConfig(url="x")])


def test_what_a_config_class_refuses_is_told_with_its_path(registry):
    """A plugin's own check of its values is not hidden behind "couldn't instantiate"."""

    @TrackerConfig.register_subclass("picky")
    @dataclasses.dataclass
    class PickyConfig(NoopConfig):
        def __post_init__(self):
            raise ValueError("not on a Monday")

    with pytest.raises(ConfigError, match=r"tracker\[0\]: ValueError: not on a Monday"):
        draccus.decode(Trackers, [{"type": "picky"}])


def test_a_class_that_forgot_to_be_a_dataclass_is_named(registry):
    """Fields without @dataclass would be unknown fields; the message says what is missing instead."""

    @TrackerConfig.register_subclass("bare")
    class BareConfig(NoopConfig):
        url: str = "x"

    with pytest.raises(ConfigError, match=r"BareConfig is not a dataclass; put @dataclass over it"):
        draccus.decode(Trackers, {"type": "bare", "url": "y"})
    assert BareConfig.url == "x"


def test_background_takes_a_policy(program):
    """`background` may be true, false, or the limits."""
    (config,) = decoded(program, "{type: recording, background: {queue_size: 7, on_full: block}}")
    assert config.background == BackgroundPolicy(queue_size=7, on_full="block")
    assert decoded(program, "{type: recording, background: true}")[0].background is True


def test_registries_of_others_are_decoded_as_before():
    """Choice classes that are no trackers are left to draccus's own handling."""

    @dataclasses.dataclass
    class Shape(draccus.ChoiceRegistry):
        pass

    @Shape.register_subclass("circle")
    @dataclasses.dataclass
    class Circle(Shape):
        radius: float = 1.0

    assert draccus.decode(Shape, {"type": "circle", "radius": 2}) == Circle(2.0)
    with pytest.raises(draccus.ParsingError, match="are not valid for Circle"):
        draccus.decode(Shape, {"type": "circle", "radios": 2})


def test_a_type_that_only_the_type_checker_knows_is_named(registry):
    """A plugin whose field has a type imported under TYPE_CHECKING alone gets an error with the cure."""
    namespace = {"TrackerConfig": TrackerConfig, "dataclass": dataclasses.dataclass}
    source = """
from __future__ import annotations
@TrackerConfig.register_subclass("lazy")
@dataclass
class LazyConfig(TrackerConfig):
    amount: Decimal = 0
    def init(self, run_id): ...
"""
    exec(source, namespace)
    with pytest.raises(ConfigError, match=r"LazyConfig cannot be told: .*Decimal.*; import the name outside"):
        draccus.decode(Trackers, {"type": "lazy", "amount": 3})
