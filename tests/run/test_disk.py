"""Disks that are full for a while, or for ever."""

from __future__ import annotations

import pytest
from programs import content, run_program

from trackway.errors import TrackerFinishError
from trackway.run import Run
from trackway.store import LocalTracker, read_rows

FULL = """
import logging, resource
class Counter(logging.Handler):
    said = []
    def emit(self, record):
        self.said.append(record.getMessage())
logging.getLogger("trackway").addHandler(Counter())
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
run = begin(Lines())
for step in range(50):
    run.log({"loss": step / 7}, step=step)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1] + "/metrics.jsonl") + 100, hard))
Lines.log = lambda self, *args, **kwargs: seen.append(kwargs["step"])
seen = []
for step in range(50, 2050):
    run.log({"loss": step / 7}, step=step)
    if step % 100 == 0:
        run.flush()
waiting = run.report().store.pending
"""
FREED = """
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
import atexit
@atexit.register
def tell():
    print(waiting, len(Counter.said), seen == list(range(49, seen[-1] + 1)), seen[-1])
"""


@pytest.mark.parametrize(
    "after", ["run.log({'loss': 2050 / 7}, step=2050)\nrun.finish()", "run.finish()", "sys.exit(0)"]
)
def test_rows_wait_for_room(tmp_path, after):
    """2,000 rows on a full disk reach the trackers meanwhile, wait, and are all written in order once there is room."""
    done = run_program(FULL + FREED + after, tmp_path / "run", seconds=30)
    assert done.returncode == 0, done.stderr
    waiting, said, delivered, last = done.stdout.split()
    assert int(waiting) > 1900
    assert int(said) <= 10, done.stderr
    assert (delivered, int(last)) == ("True", 2050 if "2050" in after else 2049)
    rows = read_rows(tmp_path / "run")
    assert [(row["_step"], row["loss"]) for row in rows] == [(step, step / 7) for step in range(int(last) + 1)]
    assert content(tmp_path / "run")["state"] == "finished"


def test_finish_on_a_full_disk_tells_what_is_lost(tmp_path):
    """Where there is no room to the end, `finish` raises with the number of rows; the trackers have them all."""
    program = f"""{FULL}
try:
    run.finish()
except TrackerFinishError as error:
    print(error.exceptions[0], "/", len(Counter.said), seen == list(range(49, 2050)))
"""
    done = run_program(program, tmp_path / "run", seconds=30)
    assert done.returncode == 0, done.stderr
    lost, rest = done.stdout.split(" / ")
    assert f"rows of 2050 could not be written to {tmp_path / 'run'}" in lost
    said, complete = rest.split()
    assert int(said) <= 10
    assert complete == "True"
    rows = read_rows(tmp_path / "run")
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    assert len(rows) + int(lost.split()[1]) == 2050


def test_store_that_fails_altogether_keeps_rows_from_nobody(tmp_path, recorder, caplog):
    """On a device that takes nothing, which is said once, trackers and callbacks get every row all the same."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").symlink_to("/dev/full")
    run = Run([recorder], LocalTracker(tmp_path / "run"))
    seen = []
    run.on_commit(seen.append)
    for step in range(100):
        run.log({"x": step}, step=step, commit=True)
    assert run.report().store.pending == 100
    with pytest.raises(TrackerFinishError, match="run run did not end well"):
        run.finish()
    assert len(seen) == len(recorder.rows) == 100
    assert recorder.finished
    assert caplog.text.count("cannot be written") == 1
