"""Names of files in a run directory."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackway.errors import ConfigError
from trackway.store._layout import absolute, metrics_name, safe_name, torn_name


@pytest.mark.parametrize("name", ["model.pt", "loss", "Größe", "a-b_c+d@e,f", "v1.2.3", "図"])
def test_harmless_names_stay(name):
    """A name that any file system takes is used as it is."""
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("step=5/loss:0.1.ckpt", "step_5_loss_0.1-", ".ckpt"),
        ("../../etc/passwd", "etc_passwd-", ""),
        (".env", "env-", ""),
        ("a\x1b[31mb.txt", "a__31mb-", ".txt"),
        ("", "unnamed-", ""),
        ("..", "unnamed-", ""),
    ],
)
def test_other_names_stay_readable(name, start, end):
    """What is not harmless is replaced, and a hash tells the result from that of another name."""
    safe = safe_name(name)
    assert safe.startswith(start)
    assert safe.endswith(end)
    assert "/" not in safe
    assert safe not in {".", ".."}


@given(st.text(alphabet=st.characters(), max_size=400), st.text(max_size=400))
def test_safe_names_are_one_short_path_part_each(first, second):
    """Any text gives a name that a file system takes, the same each time, and another for another text."""
    safe = safe_name(first)
    assert safe == safe_name(first)
    assert 0 < len(os.fsencode(safe)) <= 120
    assert not {"/", "\0", "\n"} & set(safe)
    assert not safe.startswith(".")
    assert first == second or safe != safe_name(second)


def test_directory_is_absolute_but_keeps_links(tmp_path, monkeypatch):
    """A relative directory means the one at the time of the call; links in it are not resolved."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert absolute("link/run") == tmp_path / "link" / "run"


@pytest.mark.parametrize("directory", ["s3://bucket/run", "", "a\0b"])
def test_what_is_no_directory_is_refused(directory):
    """A URL or impossible path is a configuration error that names the cure."""
    with pytest.raises(ConfigError, match="give a path"):
        absolute(directory)


def test_each_rank_has_files_of_its_own():
    """Only the primary process writes metrics.jsonl."""
    assert (metrics_name(0), torn_name(0)) == ("metrics.jsonl", "metrics.torn")
    assert (metrics_name(3), torn_name(3)) == ("metrics.rank3.jsonl", "metrics.rank3.torn")
