"""Everything that trackway raises or warns with, in one tree.

```text
TrackwayError
├── ConfigError (ValueError)          a YAML field, an option or an environment variable is wrong
├── AlertSyntaxError (ValueError)     the text of an alert rule cannot be read; the message points at the place
├── StepError (TypeError, ValueError) a step that is not an integer
├── CaptureError (ValueError)         a metric of compiled code could not be captured
├── TracerError (TypeError)           a traced JAX value reached code that runs on the host
├── LifecycleError (RuntimeError)     a call at a time at which it cannot be served
│   └── NoTrackerError                no current tracker, and the call cannot do without one
├── RunBusyError (RuntimeError)       someone else writes to the run directory
├── FatalTrackerError                 a tracker declared `required: true` failed
└── TrackerFinishError (ExceptionGroup)  failures that `finish()` may not keep to itself
TrackwayWarning (UserWarning)         a value was logged in another form than it was given
```

Every message names who speaks, what it was given, what is allowed and the cure.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AlertSyntaxError",
    "CaptureError",
    "ConfigError",
    "FatalTrackerError",
    "LifecycleError",
    "NoTrackerError",
    "RunBusyError",
    "StepError",
    "TracerError",
    "TrackerFinishError",
    "TrackwayError",
    "TrackwayWarning",
]


class TrackwayError(Exception):
    """Base of all errors raised by trackway."""


class ConfigError(TrackwayError, ValueError):
    """A configuration value is wrong; the message holds the path to it, as in `tracker[1].logdir`."""


class AlertSyntaxError(TrackwayError, ValueError):
    """An alert rule cannot be read; the message shows its text, points at the column and says what is allowed there."""


class StepError(TrackwayError, TypeError, ValueError):
    """A step is not an integer that fits in 64 bits; raised before the payload is touched."""


class CaptureError(TrackwayError, ValueError):
    """A metric of compiled code could not be captured; raised while tracing, and only where that was asked for."""


class TracerError(TrackwayError, TypeError):
    """A traced JAX value was handed to a tracker directly; `trackway.log` and `trackway.jit_log` accept it."""


class LifecycleError(TrackwayError, RuntimeError):
    """A call came at a time at which it cannot be served."""


class NoTrackerError(LifecycleError):
    """A current tracker is needed and none is set."""


class RunBusyError(TrackwayError, RuntimeError):
    """A run directory is being written by another process, or by another run of this one; the message says by whom."""


class FatalTrackerError(TrackwayError):
    """A tracker declared `required: true` failed; the only tracker failure that stops a training loop."""


class TrackerFinishError(TrackwayError, ExceptionGroup[Exception]):
    """Failures met while finishing that may not pass unseen: required members, rows that were not kept."""

    def derive(  # type: ignore[override]  # narrower than the overloads for groups of BaseException, which it never holds
        self, excs: Sequence[Exception], /
    ) -> TrackerFinishError:
        """Return a group of *excs* with this group's message, as `ExceptionGroup.split` needs."""
        return TrackerFinishError(self.message, excs)


class TrackwayWarning(UserWarning):
    """Something was logged in another form than it was given, or not at all; it is counted, and said once."""
