"""Stored runs delivered to trackers: to a service that could not be reached while the run was logged, say.

```python
report = trackway.replay("runs/digits", to={"type": "tensorboard", "logdir": "logs"})
print(report.rows, report.skipped)
```

It is what `trackway replay` does on the command line. A target that got a run before gets what it lacks, and nothing
twice. The function is the module itself: `trackway.replay` can be called.
"""

from __future__ import annotations

import sys
import types
from typing import Any, final

from trackway.replay._replay import replay
from trackway.replay._report import Progress, ReplayError, ReplayReport, TargetReport

__all__ = ["Progress", "ReplayError", "ReplayReport", "TargetReport", "replay"]


@final
class _Module(types.ModuleType):
    """A module that is called as the function of its name: importing it must not hide `trackway.replay(...)`."""

    __wrapped__ = staticmethod(replay)  # for `inspect.signature`

    def __call__(self, *args: Any, **kwargs: Any) -> ReplayReport:
        return replay(*args, **kwargs)


sys.modules[__name__].__class__ = _Module
