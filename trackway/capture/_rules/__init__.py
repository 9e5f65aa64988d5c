"""How each higher-order primitive is rewritten; importing the package registers all rules."""

from __future__ import annotations

from trackway.capture._rules import branches, calls, custom, loops, shards, whiles

__all__ = ["branches", "calls", "custom", "loops", "shards", "whiles"]
