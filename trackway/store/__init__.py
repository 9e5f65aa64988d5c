"""The run directory: what trackway keeps of a run on disk, without any service.

```text
runs/digits/
  metrics.jsonl     one line per row: {"_step": 42, "_time": 1754323200.123456, "train/loss": 0.31}
  summary.json      last value of every metric, and what `log_summary` was given, which wins
  config.yaml       hyper-parameters
  run.json          id, state, attempts, artifacts
  media/            images, audio, tables, texts that rows refer to
  artifacts/        copies of what `log_artifact` was given
```

Write it with `LocalTracker`, in YAML `type: local`. Read it back with `StoredRun`; the rows alone with `read_history`,
one for each step, or `read_rows`, one for each line:

>>> import tempfile
>>> from trackway.store import LocalTracker, read_rows
>>> with tempfile.TemporaryDirectory() as folder:
...     with LocalTracker(folder) as tracker:
...         tracker.log({"loss": 0.5}, step=0)
...     rows = read_rows(folder)
>>> rows[0]["_step"], rows[0]["loss"]
(0, 0.5)

Names that begin with `_` are trackway's own. At the beginning of a line they are, in this order: `_step`, `_time`,
`_attempt` (number of the attempt, where it is not the first), `_patch` (true where the step is not above all those
before it in the attempt: the line adds to a step, or comes late), `_nonfinite` and `_bigint` (see
`trackway.values.encode`). A mapping with `_type` is a histogram or refers to a file of media: a mapping of the user's
own never has that name, `normalise` gives it one underscore more.

A row of `LocalTracker.log` is in the file when the call returns. Rows of a `Run` that follow one another quickly are
written a few at once, after a fifth of a second at the latest. `flush` also waits for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trackway._lazy import lazily
from trackway.store._layout import FORMAT
from trackway.store._local import LocalTracker
from trackway.store._reader import read_rows
from trackway.store._summary import Summary, merge

if TYPE_CHECKING:
    from trackway.store._history import read_history
    from trackway.store._runs import read_run, runs
    from trackway.store._stored_run import StoredRun

__all__ = ["FORMAT", "LocalTracker", "StoredRun", "Summary", "merge", "read_history", "read_rows", "read_run", "runs"]

# not needed to write a run: found when asked for, so that starting one stays quick
_LATER = {"StoredRun": "_stored_run", "read_history": "_history", "read_run": "_runs", "runs": "_runs"}

__getattr__ = lazily(__name__, {name: f"{__name__}.{module}" for name, module in _LATER.items()})
