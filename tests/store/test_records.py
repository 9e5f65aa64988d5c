"""Summary, hyper-parameters and run.json."""

from __future__ import annotations

import errno
import hashlib
import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trackway.store import LocalTracker, Summary, _git
from trackway.store._atomic import replace_file
from trackway.values import normalise

_NAMES = st.sampled_from(["a", "b", "c"])
_TREES = st.recursive(st.integers(), lambda t: st.dictionaries(_NAMES, t, min_size=1, max_size=3), max_leaves=6)
_ROWS = st.dictionaries(_NAMES, _TREES, max_size=3)


def test_explicit_summary_wins_over_later_rows():
    """A value set by hand is never overwritten by a row, and its neighbours in one group are merged."""
    summary = Summary()
    summary.update({"acc": 0.91, "train": {"loss": 1.0}})
    summary.set({"acc": 0.93, "train": {"best": 0.5}})
    summary.update({"acc": 0.1, "train": {"acc": 0.2}})
    assert summary.snapshot() == {"acc": 0.93, "train": {"loss": 1.0, "acc": 0.2, "best": 0.5}}


def test_reference_is_one_value():
    """An image takes the place of the earlier one as a whole; no field of that is left."""
    summary = Summary()
    summary.update({"x": {"_type": "image", "path": "a", "caption": "first"}})
    summary.update({"x": {"_type": "image", "path": "b"}})
    assert summary.snapshot() == {"x": {"_type": "image", "path": "b"}}


@given(st.lists(_ROWS, max_size=5), st.lists(_ROWS, max_size=3))
def test_summary_survives_restoring(rows, explicit):
    """A summary that was written and restored has the same values, and the same ones set by hand."""
    summary, again = Summary(), Summary()
    for row in rows:
        summary.update(row)
    for row in explicit:
        summary.set(row)
    again.restore(summary.snapshot(), summary.explicit_paths())
    assert again.snapshot() == summary.snapshot()
    assert sorted(again.explicit_paths()) == sorted(summary.explicit_paths())


@given(_ROWS, _ROWS)
def test_rows_are_not_changed_by_the_summary(first, second):
    """Merging a later row leaves the mappings of an earlier one as they were."""
    before = json.dumps(first)
    summary = Summary()
    summary.update(first)
    summary.update(second)
    assert json.dumps(first) == before


def test_hyperparameters_are_merged_and_changes_noted(tmp_path):
    """Logging the same again changes nothing; another value is noted with the old one, a new name is not a change."""
    with LocalTracker(tmp_path) as tracker:
        tracker.log_hyperparameters({"lr": 0.1, "nan": math.nan, "model": {"width": 8}})
        tracker.log_hyperparameters({"lr": 0.1, "nan": math.nan, "model": {"width": 8}})
        tracker.log_hyperparameters({"model": {"width": 16, "depth": 2}})
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert [(c["name"], c["old"], c["new"]) for c in run["config_changes"]] == [("model/width", 8, 16)]
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["lr"] == 0.1
    assert config["model"] == {"width": 16, "depth": 2}


def test_hyperparameters_that_yaml_refuses_are_kept(tmp_path):
    """Huge integers and lone surrogates are in config.yaml too, and survive another attempt."""
    values = {"huge": 10**5000, "text": "\udc80", "list": [1, None, "x"]}
    for _ in range(2):
        with LocalTracker(tmp_path) as tracker:
            tracker.log_hyperparameters(values)
    run = json.loads((tmp_path / "run.json").read_bytes())
    assert run["config_changes"] == []
    assert not list(tmp_path.glob("*.damaged-*"))


def test_notes_of_changes_are_bounded(tmp_path):
    """A hyper-parameter that changes at every step does not make run.json grow without end; the rest is counted."""
    tracker = LocalTracker(tmp_path)
    tracker._records._config_file.save = lambda: None
    tracker._records._manifest_file.save = lambda: None
    for n in range(1100):
        tracker.log_hyperparameters({"lr": n})
    assert len(tracker._records._manifest._content["config_changes"]) == 1000
    assert sum(tracker.report().dropped.values()) == 99
    tracker.finish()


def test_notes_of_long_values_are_short(tmp_path):
    """A prompt of a megabyte that changes is noted by its beginning, length and hash, and all notes by a megabyte."""
    with LocalTracker(tmp_path, sync_interval=60) as tracker:
        for n in range(3):
            tracker.log_hyperparameters({"prompt": f"{n}" + "x" * 1_000_000, "k" * 5000: n, "layers": [n] * 1000})
    changes = json.loads((tmp_path / "run.json").read_bytes())["config_changes"]
    assert len(changes) == 6
    assert (tmp_path / "run.json").stat().st_size < 10_000
    first = changes[0]
    assert first["old"].startswith('"0xxxx')
    digest = hashlib.sha256(b'"0' + b"x" * 1_000_000 + b'"').hexdigest()
    assert first["old"].endswith(f"... (1000003 bytes, sha256 {digest})")
    assert len({(change["old"], change["new"]) for change in changes}) >= 4


def test_notes_of_changes_share_a_budget(tmp_path):
    """Many changed values stop being noted after a megabyte, over all attempts, and the rest is counted."""
    for attempt in range(2):
        tracker = LocalTracker(tmp_path, sync_interval=60)
        for n in range(4):
            tracker.log_hyperparameters({f"p{k}": f"{attempt}{n}" + "y" * 390 for k in range(900)})
        tracker.finish()
        assert (tmp_path / "run.json").stat().st_size < 1.2e6
    assert sum(tracker.report().dropped.values()) == 4 * 900


def test_failed_write_keeps_the_earlier_file(tmp_path, monkeypatch, caplog):
    """Where a file cannot be replaced the earlier one stays whole, nothing is left beside it, and it is tried again."""
    tracker = LocalTracker(tmp_path, sync_interval=60)
    tracker.log_hyperparameters({"lr": 0.1})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("trackway.store._atomic.os.fsync", full)
        tracker.log_hyperparameters({"lr": 0.2})
        tracker.log_summary({"best": 1})
    assert (tmp_path / "config.yaml").read_text() == "lr: 0.1\n"
    assert not list(tmp_path.glob(".*.tmp"))
    assert tracker.report().failed == {"log_hyperparameters": 2, "log_summary": 2}  # run.json is behind too
    assert "No space left" in caplog.text
    tracker.flush()
    assert (tmp_path / "config.yaml").read_text() == "lr: 0.2\n"
    assert json.loads((tmp_path / "summary.json").read_bytes()) == {"best": 1}
    tracker.finish()


def test_replacing_raises_what_the_system_says(tmp_path):
    """A file in a folder that is not there cannot be replaced."""
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "x", b"")


def test_heartbeat_goes_on_without_rows(tmp_path):
    """A run that logs nothing for a while is still seen to live."""
    tracker = LocalTracker(tmp_path, sync_interval=60)
    first = json.loads((tmp_path / "run.json").read_bytes())["heartbeat"]
    tracker._records._saved_at -= 11
    tracker._records._manifest_file._not_before = 0
    tracker._output.tick()
    assert json.loads((tmp_path / "run.json").read_bytes())["heartbeat"] > first
    tracker.finish()


def test_error_that_cannot_be_printed_is_noted(tmp_path):
    """An exception whose text raises does not spoil the end of a run."""

    class OddError(Exception):
        def __str__(self):
            raise RuntimeError

    tracker = LocalTracker(tmp_path)
    tracker.mark_failed(OddError())
    tracker.finish()
    error = json.loads((tmp_path / "run.json").read_bytes())["error"]
    assert error["type"].endswith("OddError")


_COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _write(path, text):
    """Write a text file, and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_commit_is_read_from_loose_and_packed_references(tmp_path):
    """The commit is found from a folder inside the working tree, loose, packed or checked out by itself."""
    (tmp_path / "src").mkdir()
    _write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    _write(tmp_path / ".git" / "packed-refs", f"# pack-refs\n{_COMMIT} refs/heads/main\n")
    assert _git.commit(tmp_path / "src") == _COMMIT
    _write(tmp_path / ".git" / "refs" / "heads" / "main", "f" * 40 + "\n")
    assert _git.commit(tmp_path) == "f" * 40
    _write(tmp_path / ".git" / "HEAD", _COMMIT)
    assert _git.commit(tmp_path) == _COMMIT


def test_commit_of_a_linked_working_tree(tmp_path):
    """A working tree beside the repository finds its own head and the shared references."""
    linked = tmp_path / "repo" / ".git" / "worktrees" / "w"
    _write(linked / "HEAD", "ref: refs/heads/topic\n")
    _write(linked / "commondir", "../..\n")
    _write(tmp_path / "repo" / ".git" / "refs" / "heads" / "topic", _COMMIT)
    _write(tmp_path / "w" / ".git", f"gitdir: {linked}\n")
    assert _git.commit(tmp_path / "w") == _COMMIT


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none\n", "<script>", "\0"])
def test_commit_that_cannot_be_told_is_none(tmp_path, head):
    """A repository without commits, or a damaged one, has no commit and raises nothing."""
    _write(tmp_path / ".git" / "HEAD", head)
    assert _git.commit(tmp_path) is None


def test_a_summary_holds_the_first_ten_thousand_names_and_says_so_once(caplog):
    """Names that are made up at every step cannot fill the memory; values of the names that are there go on."""
    summary = Summary()
    for step in range(300):
        summary.update(normalise({"loss": float(step), **{f"sample/{step}/{n}": 0.5 for n in range(50)}}))
        summary.update({f"other/{step}": {"x": 1}})
    found = summary.snapshot()
    assert (len(found), found["loss"]) == (10_000, 299.0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "more than 10,000 names" in caplog.text
