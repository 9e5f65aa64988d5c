"""Logging from inside compiled JAX code.

`trackway.log` and `jit_log` may be called in a function under `jax.jit`, at any depth. The values reach the current
tracker through a host callback, once per execution of the call, without stopping the computation:

```python
@jax.jit
def train_step(params, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    jit_log({"loss": loss})
    return update(params, grads)
```

JAX runs the callback on a thread of its own, some time after the call: `flush`, `finish` and the end of a
`current_tracker(...)` block wait for it.
"""

from __future__ import annotations

from trackway.capture._callback import jit_log, traced_log
from trackway.capture._jaxcompat import trace_active

__all__ = ["jit_log", "trace_active", "traced_log"]
