"""Ctrl+C at any moment of a row: rows that were logged are in the file, each once, in order, whole."""

from __future__ import annotations

import json

import pytest
from programs import run_program

TRIES = 150
# another signal whose handler raises the same, so that a timer can send it at any instruction
TRY = """
import collections, json, random
from trackway.store import read_rows

random.seed(SEED)
signal.signal(signal.SIGALRM, signal.default_int_handler)
wrong, came = collections.Counter(), 0
for number in range(TRIES):
    folder, seen, step = f"{sys.argv[1]}-{number}", [], 0
    run = Run([], LocalTracker(folder, exclusive=True))
    CALLBACK
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0003, 0.004))
        while step < 3000:
            run.log({"loss": step, "square": step * step}, STEP)
            step += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:  # it comes once, and on a busy machine before the first row
        came += 1
    run.finish()
    rows, steps = read_rows(folder), [row["_step"] for row in read_rows(folder)]
    wrong["lost"] += steps[:step] != list(range(step))
    wrong["more than were logged"] += len(steps) > step + 1
    wrong["torn"] += any((row["loss"], row["square"]) != (row["_step"], row["_step"] ** 2) for row in rows)
    wrong["written twice"] += len(open(f"{folder}/metrics.jsonl").readlines()) != len(steps)
    wrong["told twice"] += len(seen) != len(set(seen))
    wrong["told out of order"] += seen != sorted(seen)
    wrong["not told"] += len(set(steps) - set(seen)) > 1 if seen else 0
    report = run.report()
    wrong["counted wrong"] += {report.rows, report.store.accepted, report.store.delivered} != {len(steps)}
print(json.dumps([came, {what: count for what, count in wrong.items() if count}]))
"""


@pytest.mark.parametrize(
    ("step", "callback"),
    [
        pytest.param("step=step", "", id="steps"),
        pytest.param("", "", id="without steps"),
        pytest.param("step=step", 'run.on_commit(lambda row: seen.append(row["_step"]))', id="callback"),
    ],
)
def test_ctrl_c_loses_no_row_that_was_logged(tmp_path, step, callback):
    """The row that is being logged may be missing, and may not have reached one callback; no other one is."""
    program = TRY.replace("SEED", "7").replace("TRIES", str(TRIES)).replace("STEP", step).replace("CALLBACK", callback)
    done = run_program(program, tmp_path / "run", seconds=60)
    assert done.returncode == 0, done.stderr
    came, wrong = json.loads(done.stdout)
    assert came > TRIES * 0.9  # Python ignores one that comes in a finaliser
    assert wrong == {}
