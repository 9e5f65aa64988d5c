"""The run: one step, one row, in the run directory and at every tracker.

`trackway.start` makes one from a configuration. Made by hand, of trackers that are started:

>>> from trackway.run import Run
>>> from trackway.tracker import NoopTracker
>>> with Run([NoopTracker()]) as run:
...     run.log({"loss": 0.5}, step=0)
...     run.log({"accuracy": 0.9}, step=0)
...     run.log({"loss": 0.4}, step=1)
>>> run.report().rows
2
>>> dict(run.summary)
{'loss': 0.4, 'accuracy': 0.9}
"""

from __future__ import annotations

from trackway.run._report import RunReport
from trackway.run._rows import Committed, StepPolicy
from trackway.run._run import Run

__all__ = ["Committed", "Run", "RunReport", "StepPolicy"]
