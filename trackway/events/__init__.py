"""What happens in a run, beside its metrics: events such as `train_step` and `checkpoint`, as text, JSON and calls.

```python
with trackway.start(events=EventsConfig(every_steps=10)) as run, TrainingEvents(run) as events:
    run.hooks.append(collect)
    for step in range(100):
        events.train_step(step, {"loss": loss})
```

An `EventLogger` does without a run too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trackway._lazy import lazily
from trackway.events._config import EventsConfig
from trackway.events._hooks import EventHook, Hook, Hooks
from trackway.events._logger import EventLogger
from trackway.events._training import TrainingEvents

if TYPE_CHECKING:
    from trackway.backends._event_hooks import TensorboardHook, WandbHook
    from trackway.events._compile import Compiles, watch_compiles
    from trackway.events._memory import memory_bytes
    from trackway.events._spans import span
    from trackway.events._system import SystemMetrics, rss_bytes

__all__ = [
    "Compiles",
    "EventHook",
    "EventLogger",
    "EventsConfig",
    "Hook",
    "Hooks",
    "SystemMetrics",
    "TensorboardHook",
    "TrainingEvents",
    "WandbHook",
    "memory_bytes",
    "rss_bytes",
    "span",
    "watch_compiles",
]

# found when asked for: hooks of a layer above, so named by text only; and what a run can do without
_LATER = {
    **dict.fromkeys(("TensorboardHook", "WandbHook"), "trackway.backends._event_hooks"),
    **dict.fromkeys(("Compiles", "watch_compiles"), f"{__name__}._compile"),
    "memory_bytes": f"{__name__}._memory",
    "span": f"{__name__}._spans",
    **dict.fromkeys(("SystemMetrics", "rss_bytes"), f"{__name__}._system"),
}

__getattr__ = lazily(__name__, _LATER)
