"""Trackers on the command line, alone and over a file."""

from __future__ import annotations

import subprocess
import sys

import draccus
import pytest

from trackway.config import TrackerConfig
from trackway.tracker import BackgroundPolicy

FILE = """
trainer:
  tracker:
    - type: recording
      project: from-file
    - type: noop
  single:
    type: recording
    project: from-file
    count: 3
"""


@pytest.fixture
def parse(program, tmp_path):
    """Parses arguments, over FILE or another text where asked to."""

    def parse(*args, over=None):
        if over is not None:
            path = tmp_path / "config.yaml"
            path.write_text(over)
            args = ("--config_path", str(path), *args)
        return draccus.parse(program, args=list(args), exit_on_error=False).trainer

    return parse


def types(trackers):
    """The type names of *trackers*."""
    return [TrackerConfig.get_choice_name(type(config)) for config in trackers]


@pytest.mark.parametrize("over", [None, FILE])
@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("{type: noop}", ["noop"]),
        ("[{type: local}, {type: console}]", ["local", "console"]),
        ("noop", ["noop"]),
        ("[noop, recording]", ["noop", "recording"]),
        ("[]", []),
        ("null", []),
    ],
)
def test_an_argument_replaces_what_the_file_lists(parse, argument, expected, over):
    """Every form works alone and over a list in the file given with --config_path."""
    assert types(parse("--trainer.tracker", argument, over=over).tracker) == expected


def test_the_file_stands_where_no_argument_is_given(parse):
    """A list in the file is read as it is."""
    trainer = parse("--trainer.steps", "5", over=FILE)
    assert types(trainer.tracker) == ["recording", "noop"]
    assert trainer.tracker[0].project == "from-file"


def test_a_plain_field_takes_its_type_and_fields_one_by_one(parse):
    """A field of type TrackerConfig has an argument for its type and for each field of that type."""
    trainer = parse(
        "--trainer.single.type", "recording", "--trainer.single.project", "x", "--trainer.single.every_steps", "5"
    )
    assert (trainer.single.project, trainer.single.every_steps) == ("x", 5)
    assert types([parse("--trainer.single.type", "noop").single]) == ["noop"]


def test_a_plain_field_is_overridden_field_by_field(parse):
    """Fields given on the command line win over the file's, and the others stay."""
    single = parse("--trainer.single.project", "cli", over=FILE).single
    assert (single.project, single.count) == ("cli", 3)


def test_an_optional_field_takes_its_type_and_fields(parse):
    """A field of type `TrackerConfig | None` does the same."""
    assert parse("--trainer.optional.type", "recording", "--trainer.optional.count", "2").optional.count == 2
    assert parse().optional is None


def test_background_is_given_as_a_mapping(parse):
    """The limits of a background tracker are one argument, which does not appear at the top level."""
    trainer = parse("--trainer.single.type", "noop", "--trainer.single.background", "{queue_size: 5}")
    assert trainer.single.background == BackgroundPolicy(queue_size=5)
    with pytest.raises(draccus.utils.DraccusException, match="unrecognized arguments"):
        parse("--background", "true")


def test_a_mapping_over_a_mapping_says_how_to_replace_it(parse):
    """Two mappings are merged by draccus; where the file's fields do not fit the new type, the error gives the cure."""
    with pytest.raises(draccus.ParsingError, match=r"to replace it, give a list: '\[\{type: noop\}\]'"):
        parse("--trainer.tracker", "{type: noop}", over="trainer: {tracker: {type: recording, count: 3}}")
    one = "trainer: {tracker: {type: recording, count: 3}}"
    assert types(parse("--trainer.tracker", "[{type: noop}]", over=one).tracker) == ["noop"]
    assert types(parse("--trainer.tracker", "noop", over=one).tracker) == ["noop"]


@pytest.mark.parametrize("argument", ["--trainer.track", "--trainer.tracker.typ", "--trainer.single.typ", "--tracker"])
def test_abbreviations_are_refused(parse, argument):
    """A prefix of an argument, or a field's name without its path, is not taken for it."""
    with pytest.raises(draccus.utils.DraccusException, match="unrecognized arguments"):
        parse(argument, "noop")


def test_an_error_on_the_command_line_has_the_path(parse):
    """What is wrong in an argument is told like what is wrong in a file."""
    with pytest.raises(draccus.ParsingError, match=r"trainer\.tracker\[1\]\.projct: unknown field of recording"):
        parse("--trainer.tracker", "[noop, {type: recording, projct: x}]")


PROGRAM = """
from dataclasses import dataclass
import draccus
from trackway.config import TrackerConfig, Trackers

@dataclass
class Config:
    tracker: Trackers = Trackers()
    steps: int = 1

@draccus.wrap()
def main(config: Config):
    print([TrackerConfig.get_choice_name(type(c)) for c in config.tracker], config.steps)

main()
"""


@pytest.mark.parametrize(
    ("args", "output"),
    [
        ([], "['local'] 1"),
        (["--tracker", "[{type: noop}, {type: console}]", "--steps", "3"], "['noop', 'console'] 3"),
        (["--help"], "--tracker"),
    ],
)
def test_a_wrapped_main_function_reads_the_real_command_line(args, output, tmp_path):
    """draccus.wrap, a class with `Trackers()` as its default, and --help work in a program of its own."""
    (tmp_path / "program.py").write_text(PROGRAM)
    result = subprocess.run([sys.executable, "program.py", *args], cwd=tmp_path, capture_output=True, text=True)
    assert output in result.stdout, result.stderr
