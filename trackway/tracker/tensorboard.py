"""The classes of `trackway.backends.tensorboard` under the path at which other libraries keep theirs."""

from __future__ import annotations

from trackway._lazy import lazily

_HOME = "trackway.backends.tensorboard"

__getattr__ = lazily(__name__, {"TensorboardTracker": _HOME, "TensorboardConfig": _HOME})
