"""`type: local`: the run directory on disk, used where a configuration names no type."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal, final

from trackway.config import TrackerConfig, base_dir, check_run_id, run_context
from trackway.config._run_id import new_run_id
from trackway.errors import ConfigError
from trackway.store import LocalTracker

__all__ = ["LocalConfig", "LocalTracker"]


@final
@TrackerConfig.register_subclass("local")
@dataclass
class LocalConfig(TrackerConfig):
    """Keeps the run in `<dir>/<run_id>`.

    Attributes:
        dir: The folder under which run directories are made; None takes `TRACKWAY_DIR`, or "runs".
        strict_json: Write NaN and infinities as null with what they were beside it, for parsers that refuse them.
        upload_interval: Seconds after which what is new is brought to a URL; whoever is killed loses the rows since.
        ranks: "all": each process of a job writes its own rows, the primary one everything else.
    """

    dir: str | None = None
    strict_json: bool = False
    upload_interval: float = field(default=10.0, kw_only=True)
    ranks: Literal["primary", "all"] = field(default="all", kw_only=True)

    def init(self, run_id: str | None, *, exclusive: bool = False) -> LocalTracker:
        """Open the run directory.

        Args:
            run_id: The name of the run directory; None makes up a new one.
            exclusive: Refuse a directory that someone else writes to, instead of adding rows of its own.

        Raises:
            ConfigError: if *run_id* is not a name, *upload_interval* not above 0, or the directory cannot be written.
            RunBusyError: if *exclusive*, and someone else writes to the directory.
        """
        if type(self.upload_interval) not in {int, float} or not self.upload_interval > 0:
            raise ConfigError(
                f"local.upload_interval must be a number of seconds above 0, got {self.upload_interval!r}"
            )
        context = run_context()
        name = check_run_id(run_id) if run_id is not None else context.run_id if context else new_run_id()
        if context is not None and self.dir is None:
            directory = context.directory
        else:
            directory = os.path.join(self.dir or base_dir(), name)  # noqa: PTH118 - may be a URL, refused with a cure
        return LocalTracker(
            directory,
            run_id=name,
            strict_json=self.strict_json,
            exclusive=exclusive,
            upload_interval=self.upload_interval,
        )
