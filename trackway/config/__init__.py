"""Trackers chosen in YAML, and runs started from it.

```python
@dataclass
class TrainerConfig:
    tracking: TrackingConfig = field(default_factory=TrackingConfig)

config = draccus.parse(TrainerConfig)
with config.tracking.start(config=config) as run:
    ...
```

```yaml
tracking:
  run_id: digits
  trackers:                # one mapping, or a list
    - type: console
    - type: tensorboard
      logdir: logs
      every_steps: 10      # options of `TrackerConfig`, common to all backends
```

On the command line: `--tracking.run_id digits`, `--tracking.trackers noop`, `--tracking.trackers '{type: noop}'`,
`--tracking.trackers '[{type: console}, {type: json_logger}]'`.

`TrackingConfig` has the parameters of `start` as its fields. Where trackers are wanted without a run, the field is a
`Trackers`, built by `config.trackers.build(run_id)`; a field of the plain type `TrackerConfig` holds one tracker and
takes `--tracker.type noop`.

>>> from trackway.config import Trackers
>>> from trackway.backends.noop import NoopConfig
>>> with Trackers([NoopConfig(label="quiet")]).build() as tracker:
...     [member.name for member in tracker.loggers]
['quiet']

Environment: `TRACKWAY_MODE` (disabled, offline; disabled wins over any configuration), `TRACKWAY_DIR`,
`TRACKWAY_RUN_ID`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trackway._lazy import lazily
from trackway.config._base import TrackerConfig
from trackway.config._context import RunContext, run_context
from trackway.config._draccus import teach_draccus
from trackway.config._environment import Mode, base_dir, mode
from trackway.config._extras import missing_extra
from trackway.config._run_id import check_run_id
from trackway.config._trackers import Trackers
from trackway.config._tracking import TrackingConfig

if TYPE_CHECKING:
    from trackway.config._start import finish, start

__all__ = [
    "Mode",
    "RunContext",
    "TrackerConfig",
    "Trackers",
    "TrackingConfig",
    "base_dir",
    "check_run_id",
    "finish",
    "missing_extra",
    "mode",
    "run_context",
    "start",
]

__getattr__ = lazily(__name__, dict.fromkeys(("finish", "start"), "trackway.config._start"))

teach_draccus()
