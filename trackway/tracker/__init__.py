"""The tracker interface, the current tracker, and the verbs that talk to it.

```python
from trackway.tracker import CompositeTracker, current_tracker, log, log_summary

with current_tracker(CompositeTracker([local, tensorboard])):
    for step in range(100):
        log({"loss": 1 / (step + 1)}, step=step)
    log_summary({"best_loss": 0.01})
```

A backend implements `Tracker`: a name and five methods. Everything else here stands in front of trackers:
`CompositeTracker` (several at once), `BackgroundTracker` (on a thread of its own), `FilteredTracker` (some metrics
only), `RequiredTracker` (its failure stops the run). Names that live above this package, such as `jit_log` and
`TrackerConfig`, are found here too, because code written for other trackers looks for them here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trackway._lazy import lazily
from trackway.tracker._ambient import at_step
from trackway.tracker._background import BackgroundTracker
from trackway.tracker._composite import CompositeTracker
from trackway.tracker._current import current_tracker, set_global_tracker
from trackway.tracker._dispatch import INTERFACE, Call, ForwardingTracker, walk
from trackway.tracker._filters import FilteredTracker, FilterPolicy
from trackway.tracker._interface import Tracker
from trackway.tracker._isolation import RequiredTracker
from trackway.tracker._ledger import Ledger, Lifecycle, Report
from trackway.tracker._lookup import get_tracker, leaves
from trackway.tracker._noop import NoopTracker
from trackway.tracker._policy import BackgroundPolicy
from trackway.tracker._process import is_primary, process_rank
from trackway.tracker._span import Span
from trackway.tracker._steps import StepCounter, check_step
from trackway.tracker._verbs import (
    log,
    log_artifact,
    log_configuration,
    log_event,
    log_hyperparameters,
    log_summary,
)
from trackway.values import LoggableValue

if TYPE_CHECKING:
    from trackway.capture import capture_logging, defer_tracker_for_jit, jit_log
    from trackway.config import TrackerConfig

__all__ = [
    "INTERFACE",
    "BackgroundPolicy",
    "BackgroundTracker",
    "Call",
    "CompositeTracker",
    "FilterPolicy",
    "FilteredTracker",
    "ForwardingTracker",
    "Ledger",
    "Lifecycle",
    "LoggableValue",
    "NoopTracker",
    "Report",
    "RequiredTracker",
    "Span",
    "StepCounter",
    "Tracker",
    "TrackerConfig",
    "at_step",
    "capture_logging",
    "check_step",
    "current_tracker",
    "defer_tracker_for_jit",
    "get_tracker",
    "is_primary",
    "jit_log",
    "leaves",
    "log",
    "log_artifact",
    "log_configuration",
    "log_event",
    "log_hyperparameters",
    "log_summary",
    "process_rank",
    "set_global_tracker",
    "walk",
]

_ABOVE = {
    **dict.fromkeys(("capture_logging", "defer_tracker_for_jit", "jit_log"), "trackway.capture"),
    "TrackerConfig": "trackway.config",
}

__getattr__ = lazily(__name__, _ABOVE)
