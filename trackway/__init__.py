"""One tracker interface for training code.

Pick backends in the trainer's YAML, make the tracker current, log from anywhere:

>>> import trackway
>>> with trackway.current_tracker(trackway.NoopTracker()):
...     trackway.log({"loss": 0.5, "train": {"accuracy": 0.9}}, step=0)
...     trackway.log_summary({"best_loss": 0.5})

In a program the run comes from the configuration:

```python
from trackway import TrackingConfig, log

@dataclass
class TrainerConfig:
    tracking: TrackingConfig = field(default_factory=TrackingConfig)    # trackers, run id, ... in YAML

with config.tracking.start(config=config) as run:
    log({"loss": loss}, step=step)      # here, in the model, in a jit-compiled function
```

`start` does the same without a configuration. What is logged for one step is one row, in the run directory and at every
tracker; the block ends the run, or `finish` does:

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, trackway.start(dir=folder, run_id="digits") as run:
...     trackway.log({"loss": 0.5}, step=0)
...     trackway.log({"accuracy": 0.9}, step=0)
...     run.flush(commit_open=True)
...     trackway.store.read_rows(run.store.directory)[0]["accuracy"]
0.9

To be sure that everything logged so far is written, call `flush()` on the run.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

__path__ = pkgutil.extend_path(__path__, __name__)  # another distribution may ship trackway/backends/mine.py
__version__ = "0.1.0"

from trackway._lazy import lazily

if TYPE_CHECKING:
    from trackway.capture import (
        Logs,
        at_step,
        capture_logging,
        defer_tracker_for_jit,
        jit,
        jit_log,
        mute,
        reduce_across_processes,
        scope,
        watch_grad,
    )
    from trackway.config import TrackerConfig, Trackers, TrackingConfig, finish, start
    from trackway.errors import TrackwayError, TrackwayWarning
    from trackway.events import span
    from trackway.replay import replay
    from trackway.run import Run
    from trackway.store import read_run, runs
    from trackway.tracker import (
        BackgroundPolicy,
        BackgroundTracker,
        CompositeTracker,
        NoopTracker,
        Tracker,
        current_tracker,
        get_tracker,
        log,
        log_artifact,
        log_configuration,
        log_event,
        log_hyperparameters,
        log_summary,
        set_global_tracker,
    )
    from trackway.values import Audio, Histogram, Html, Image, LoggableValue, Table, Text

_HOME = {
    "Audio": "values",
    "BackgroundPolicy": "tracker",
    "BackgroundTracker": "tracker",
    "CompositeTracker": "tracker",
    "Histogram": "values",
    "Html": "values",
    "Image": "values",
    "LoggableValue": "values",
    "Logs": "capture",
    "NoopTracker": "tracker",
    "Run": "run",
    "Table": "values",
    "Text": "values",
    "Tracker": "tracker",
    "TrackerConfig": "config",
    "Trackers": "config",
    "TrackingConfig": "config",
    "TrackwayError": "errors",
    "TrackwayWarning": "errors",
    "at_step": "capture",
    "capture_logging": "capture",
    "current_tracker": "tracker",
    "defer_tracker_for_jit": "capture",
    "finish": "config",
    "get_tracker": "tracker",
    "jit": "capture",
    "jit_log": "capture",
    "log": "tracker",
    "log_artifact": "tracker",
    "log_configuration": "tracker",
    "log_event": "tracker",
    "log_hyperparameters": "tracker",
    "log_summary": "tracker",
    "mute": "capture",
    "read_run": "store",
    "reduce_across_processes": "capture",
    "replay": "replay",
    "runs": "store",
    "scope": "capture",
    "set_global_tracker": "tracker",
    "span": "events",
    "start": "config",
    "watch_grad": "capture",
}

__all__ = [
    "Audio",
    "BackgroundPolicy",
    "BackgroundTracker",
    "CompositeTracker",
    "Histogram",
    "Html",
    "Image",
    "LoggableValue",
    "Logs",
    "NoopTracker",
    "Run",
    "Table",
    "Text",
    "Tracker",
    "TrackerConfig",
    "Trackers",
    "TrackingConfig",
    "TrackwayError",
    "TrackwayWarning",
    "at_step",
    "capture_logging",
    "current_tracker",
    "defer_tracker_for_jit",
    "finish",
    "get_tracker",
    "jit",
    "jit_log",
    "log",
    "log_artifact",
    "log_configuration",
    "log_event",
    "log_hyperparameters",
    "log_summary",
    "mute",
    "read_run",
    "reduce_across_processes",
    "replay",
    "runs",
    "scope",
    "set_global_tracker",
    "span",
    "start",
    "watch_grad",
]


# `import trackway` and then `trackway.capture.settings(...)`
_PARTS = ("alerts", "backends", "capture", "config", "errors", "events", "run", "store", "testing", "tracker", "values")

__getattr__ = lazily(
    __name__, {**{name: f"{__name__}.{home}" for name, home in _HOME.items()}, **{p: f"{__name__}.{p}" for p in _PARTS}}
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
