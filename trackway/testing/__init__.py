"""Test kit: for the tests of training code, and of backends.

In a test of training code, record what it logs:

>>> from trackway import current_tracker, log
>>> from trackway.testing import RecordingTracker
>>> with current_tracker(RecordingTracker()) as tracker:
...     log({"loss": 0.5}, step=3)
>>> tracker.rows
[(3, {'loss': 0.5})]

In the tests of a backend, subclass `TrackerConformance` and say how to make the tracker; pytest then runs everything
that a tracker has to stand. `SlowTracker` and `FailingTracker` are the neighbours that one does not want.
"""

from __future__ import annotations

from trackway.testing._capabilities import Capability, capabilities, capability_table
from trackway.testing._conformance import TrackerConformance
from trackway.testing._trackers import FailingTracker, RecordingTracker, SlowTracker
from trackway.testing._values import AWKWARD_NAMES, VALUES

__all__ = [
    "AWKWARD_NAMES",
    "VALUES",
    "Capability",
    "FailingTracker",
    "RecordingTracker",
    "SlowTracker",
    "TrackerConformance",
    "capabilities",
    "capability_table",
]
