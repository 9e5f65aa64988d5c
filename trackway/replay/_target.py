"""Where a run is to be delivered to."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

from trackway.config import RunContext, TrackerConfig, Trackers
from trackway.config import mode as environment_mode
from trackway.config._build import build_bare
from trackway.config._decode import decode_trackers
from trackway.config._encode import encode_config
from trackway.config._options import filter_policy
from trackway.config._registry import type_name
from trackway.config._trackers import place
from trackway.errors import ConfigError
from trackway.replay._report import ReplayError
from trackway.store import LocalTracker, StoredRun
from trackway.store._layout import is_url
from trackway.tracker import FilterPolicy, Tracker
from trackway.tracker._interface import name_of
from trackway.values import encode

__all__ = ["Target", "To", "targets_of"]

To: TypeAlias = "TrackerConfig | Tracker | str | Mapping[str, Any] | Sequence[Any]"
"""What can be named as a target, or as several."""

_NO_PLACE = frozenset({
    *("label", "required", "on_init_error", "ranks", "background", "init_timeout", "finish_timeout"),
    *("flush_secs", "max_queue", "save_code", "save_xla_dumps"),
})  # fmt: skip
"""Fields of configurations that do not say where to."""

_PATHS = frozenset({"dir", "logdir", "path"})
_ENVIRONMENT = ("WANDB_MODE", "WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_PROJECT", "TRACKIO_DIR", "TRACKIO_SPACE_ID",
                "TRACKIO_SERVER_URL")  # fmt: skip


@final
class Target:
    """One tracker to be, or one that somebody has started.

    Attributes:
        name: Its name, as in the configuration.
        policy: What it is to see of a row.
        identity: What tells it from other targets; None for a tracker that is started already.
    """

    def __init__(self, what: TrackerConfig | Tracker, path: str) -> None:
        """Take a configuration or a tracker; *path* says in errors which one it is."""
        self._what = what
        self._path = path
        if isinstance(what, Tracker):
            self.name, self.policy, self.identity = name_of(what), FilterPolicy(), None
        else:
            self.name = what.label or type_name(type(what))
            self.policy = filter_policy(what)
            self.identity = _identity(what)

    def check(self, run: StoredRun) -> None:
        """Refuse what would write into the run itself.

        Raises:
            ReplayError: if it would.
        """
        what = self._what
        if isinstance(what, LocalTracker):
            own = str(what.directory)
        elif not isinstance(what, Tracker) and type_name(type(what)) == "local":
            folder = getattr(what, "dir", None)
            if folder is None:
                raise ReplayError(f"{self._path}: to copy a run, say where to: `{{type: local, dir: FOLDER}}`")
            own = os.path.join(os.path.expanduser(folder), run.id)  # noqa: PTH111, PTH118 - may be a URL
        else:
            return
        same = own == run.place if is_url(own) else Path(own).resolve() == Path(run.place).resolve()
        if same:
            raise ReplayError(f"{self._path}: {run.place} is the run itself; give the `dir` of another folder")

    def start(self, context: RunContext) -> Tracker:
        """Return the tracker, started, as it calls itself: without the wrappers that a training loop needs.

        Raises:
            ReplayError: if it cannot be started.
        """
        if isinstance(self._what, Tracker):
            return self._what
        config = dataclasses.replace(self._what, background=False, required=True, on_init_error="raise")
        more = {"exclusive": True} if type_name(type(config)) == "local" else {}
        member = build_bare(config, context, self._path, **more)
        if member.off:
            raise ReplayError(f"{self._path} is off, so nothing can be delivered: {member.off}")
        self._refuse_stand_in(config, member.tracker)
        return member.tracker

    def _refuse_stand_in(self, config: TrackerConfig, tracker: Tracker) -> None:
        """Refuse a W&B run that fell back to being offline: what it got would count as delivered."""
        asked = environment_mode() == "offline" or "offline" in {
            getattr(config, "mode", ""),
            os.environ.get("WANDB_MODE"),
        }
        run = getattr(tracker, "run", None) if type_name(type(config)) == "wandb" else None
        if run is None or asked or not getattr(run.settings, "_offline", False):
            return
        tracker.finish()
        raise ReplayError(
            f"{self._path}: W&B cannot be reached, or there is no key for it; `mode: offline` in the target makes a "
            "run to be uploaded by `wandb sync`"
        )


def _identity(config: TrackerConfig) -> str:
    """Return what is the same for all configurations of one place: their type and a hash."""
    values = {name: value for name, value in encode_config(config).items() if name not in _NO_PLACE}
    for name in _PATHS & values.keys():
        value = values[name]
        if isinstance(value, str) and not is_url(value):
            values[name] = os.path.abspath(os.path.expanduser(value))  # noqa: PTH100, PTH111 - a name, maybe of nothing
    kind = type_name(type(config))
    prefix = f"{kind.upper()}_"
    values |= {name: os.environ[name] for name in _ENVIRONMENT if name.startswith(prefix) and name in os.environ}
    if environment_mode() == "offline":
        values["mode"] = "offline"
    digest = hashlib.sha256(encode(dict(sorted(values.items())))).hexdigest()[:16]
    return f"{''.join(c if c.isalnum() else '_' for c in kind)[:40]}-{digest}"


def targets_of(to: To) -> list[Target]:
    """Return the targets that *to* means: a configuration or a mapping as in YAML, a started tracker, or several.

    Raises:
        ConfigError: for anything else, and for none.
    """
    items = [to] if isinstance(to, (str, Mapping, TrackerConfig, Tracker)) else list(to)
    found: list[TrackerConfig | Tracker] = []
    for index, item in enumerate(items):
        path = ("to", str(index)) if len(items) > 1 else ("to",)
        found += [item] if isinstance(item, Tracker) else decode_trackers(Trackers, item, path)
    if not found:
        raise ConfigError("to: name at least one target, such as {type: tensorboard, logdir: logs}")
    return [Target(item, _path(found, index)) for index, item in enumerate(found)]


def _path(found: Sequence[TrackerConfig | Tracker], index: int) -> str:
    item = found[index]
    return name_of(item) if isinstance(item, Tracker) else place(found, index, "to")
