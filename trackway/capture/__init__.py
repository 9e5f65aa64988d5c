"""Logging from inside compiled JAX code.

`trackway.log` may be called in a function under `jax.jit`, at any depth and under any transformation. What it is given
comes back as ordinary outputs of the compiled function, and reaches the tracker without a host callback:

```python
@trackway.jit(donate_argnums=0)
def train_step(params, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)  # loss_fn may log, too
    trackway.log({"loss": loss})
    return update(params, grads)
```

`capture_logging` is the pure form of it, for every other `jit`. Where nothing captures, a host callback delivers.

How it works: `log` binds a primitive without outputs (`_primitive`); loops and branches that hold one are rewritten
where they are bound (`_hooks`), calls when the function has been traced (`_rewrite`, `_rules`). Every metric is a
monoid (`_kinds`, `_collections`), so one set of rules serves loops, branches, `vmap` and devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trackway._lazy import lazily
from trackway.capture._door import jit_log, trace_active, traced_log
from trackway.capture._settings import losses, settings
from trackway.errors import CaptureError
from trackway.tracker._ambient import at_step

if TYPE_CHECKING:
    from trackway.capture._capturing import capture_logging
    from trackway.capture._collections import Hist, Ring
    from trackway.capture._deferring import defer_tracker_for_jit
    from trackway.capture._jit import Jitted, jit
    from trackway.capture._logs import Logs
    from trackway.capture._processes import reduce_across_processes
    from trackway.capture._scopes import mute, scope
    from trackway.capture._watching import watch_grad

__all__ = [
    "CaptureError",
    "Hist",
    "Jitted",
    "Logs",
    "Ring",
    "at_step",
    "capture_logging",
    "defer_tracker_for_jit",
    "jit",
    "jit_log",
    "losses",
    "mute",
    "reduce_across_processes",
    "scope",
    "settings",
    "trace_active",
    "traced_log",
    "watch_grad",
]

# what needs JAX is imported when it is asked for
_LATER = {
    **dict.fromkeys(("Hist", "Ring"), "_collections"),
    "Logs": "_logs",
    "capture_logging": "_capturing",
    "defer_tracker_for_jit": "_deferring",
    **dict.fromkeys(("Jitted", "jit"), "_jit"),
    **dict.fromkeys(("mute", "scope"), "_scopes"),
    "reduce_across_processes": "_processes",
    "watch_grad": "_watching",
}

__getattr__ = lazily(__name__, {name: f"{__name__}.{module}" for name, module in _LATER.items()})
