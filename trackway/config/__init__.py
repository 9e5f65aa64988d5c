"""Trackers chosen in YAML.

```python
@dataclass
class TrainerConfig:
    tracker: Trackers = Trackers()

config = draccus.parse(TrainerConfig)
with config.tracker.build(run_id="digits") as tracker:
    ...
```

```yaml
tracker:                 # one mapping, or a list
  - type: local
  - type: tensorboard
    logdir: logs
    every_steps: 10      # options of `TrackerConfig`, common to all backends
```

On the command line: `--tracker noop`, `--tracker '{type: noop}'`, `--tracker '[{type: local}, {type: console}]'`. A
field of the plain type `TrackerConfig` holds one tracker and takes `--tracker.type noop`.

>>> from trackway.config import Trackers
>>> from trackway.backends.noop import NoopConfig
>>> with Trackers([NoopConfig(label="quiet")]).build() as tracker:
...     [member.name for member in tracker.loggers]
['quiet']

Environment: `TRACKWAY_MODE` (disabled, offline; disabled wins over any configuration), `TRACKWAY_DIR`,
`TRACKWAY_RUN_ID`.
"""

from __future__ import annotations

from trackway.config._base import TrackerConfig
from trackway.config._context import RunContext, run_context
from trackway.config._draccus import teach_draccus
from trackway.config._environment import Mode, base_dir, mode
from trackway.config._extras import missing_extra
from trackway.config._run_id import check_run_id
from trackway.config._trackers import Trackers

__all__ = [
    "Mode",
    "RunContext",
    "TrackerConfig",
    "Trackers",
    "base_dir",
    "check_run_id",
    "missing_extra",
    "mode",
    "run_context",
]

teach_draccus()
