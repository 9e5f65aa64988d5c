"""The classes of `trackway.backends.wandb` under the path at which other libraries keep theirs."""

from __future__ import annotations

from trackway._lazy import lazily

_HOME = "trackway.backends.wandb"

__getattr__ = lazily(__name__, {"WandbTracker": _HOME, "WandbConfig": _HOME})
