"""The backends: one module per `type` in YAML, each with its tracker and its self-registering config.

Nothing is imported here. A configuration imports the module named like its `type`, and a module imports the library
that it needs when its tracker is started. Another distribution adds a backend by an entry point in the group
`trackway.backends`, or by shipping a module `trackway/backends/<type>.py`.
"""

from __future__ import annotations

import pkgutil

__all__: list[str] = []

__path__ = pkgutil.extend_path(__path__, __name__)
