"""Run ids are names, not paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackway.backends.noop import NoopConfig
from trackway.config import Trackers, check_run_id
from trackway.errors import ConfigError


@pytest.mark.parametrize(
    "run_id",
    ["digits", "digits-lr3e-4", "2026.01.01", "läuft", "run 7", "_x", "a..b", "con-fig", "x" * 128, "コンピュータ"],
)
def test_names_are_kept_as_they_are(run_id):
    """Letters of any script, digits, dots, dashes and inner spaces make a name."""
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    ("run_id", "message"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        (".", "is a path"),
        ("..", "is a path"),
        ("../x", "holds '/'"),
        ("a/b", "holds '/'"),
        ("/abs", "holds '/'"),
        ("a\\b", "holds"),
        ("C:x", "holds ':'"),
        ("a*", "holds"),
        ("a\nb", "holds"),
        ("a\x00b", "holds"),
        ("a\x1b[31m", "holds"),
        ("a\u202eb", "holds"),
        ("a\ud800b", "holds"),
        ("x.", "ends with a dot"),
        (" x", "begins or ends with a space"),
        ("x" * 129, "longer than 128 bytes"),
        ("é" * 65, "longer than 128 bytes"),
        ("x" * 100_000, r"characters\) is longer"),
        ("nul", "device name"),
        ("CON", "device name"),
        ("com1.txt", "device name"),
        (5, "must be text, got 5"),
        (b"x", "must be text"),
    ],
)
def test_everything_else_is_refused(run_id, message):
    """Paths, what file systems or terminals trip over, and what is no text raise an error that says why."""
    with pytest.raises(ConfigError, match=message) as caught:
        check_run_id(run_id)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("build", [NoopConfig().build, Trackers([NoopConfig()]).build])
def test_build_checks_its_run_id(build):
    """No backend is handed a run id that is a path."""
    with pytest.raises(ConfigError, match="holds '/'"):
        build("../../etc")


@given(st.text(max_size=200))
def test_what_passes_is_one_part_of_a_path(tmp_path_factory, text):
    """Whatever text passes can be made a folder directly inside another."""
    try:
        name = check_run_id(text)
    except ConfigError:
        return
    folder = tmp_path_factory.getbasetemp() / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    assert folder.resolve().parent == (tmp_path_factory.getbasetemp() / "runs").resolve()
