"""Several trackers as one field of a configuration."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self, final

from trackway import _notices
from trackway.config._base import TrackerConfig
from trackway.config._build import Member, build, context_for
from trackway.config._context import RunContext
from trackway.config._environment import mode
from trackway.config._errors import show
from trackway.config._registry import type_name
from trackway.errors import ConfigError
from trackway.tracker import CompositeTracker

__all__ = ["Trackers", "announce", "place"]


@final
class Trackers(tuple[TrackerConfig, ...]):
    """The trackers of a run: the type of a trainer's field.

    ```python
    @dataclass
    class TrainerConfig:
        tracker: Trackers = Trackers()
    ```

    In YAML it is one mapping, a list of them, a type alone (`tracker: noop`), or null for none. `Trackers()` is one
    tracker of the default type, `local`; `Trackers([])` is none.
    """

    __slots__ = ()

    def __new__(cls, configs: Iterable[TrackerConfig] | TrackerConfig | None = None) -> Self:
        """Return the given configs, one or several, or the default one."""
        if configs is None:
            configs = TrackerConfig.get_choice_class(str(TrackerConfig.default_choice_name()))()
        # items are checked in `build`, because dataclasses.asdict makes one of plain dicts
        return super().__new__(cls, (configs,) if isinstance(configs, TrackerConfig) else configs)

    def __repr__(self) -> str:
        return f"Trackers({list(self)!r})"

    def build(self, run_id: str | None = None) -> CompositeTracker:
        """Return all trackers, started, behind one; the names of those that are active are logged once, at INFO.

        Args:
            run_id: The run's id, the same for all. None takes `TRACKWAY_RUN_ID`, else makes one up.

        Raises:
            ConfigError: as `TrackerConfig.build` does, and if an item is not a `TrackerConfig`; trackers that were
                started already are finished before.
        """
        context = context_for(run_id)
        members: list[Member] = []
        try:
            for index, config in enumerate(self):
                members.append(build(_checked(config, index), context, place(self, index, "tracker")))
        except BaseException:
            with contextlib.suppress(Exception):
                CompositeTracker(member.tracker for member in members).finish()
            raise
        announce(members, context)
        return CompositeTracker(member.tracker for member in members)


def place(configs: Sequence[Any], index: int, field: str) -> str:
    """Return which of *configs*, in a field of that name, the one at *index* is: `tracker[1] (noop)`."""
    position = f"[{index}]" if len(configs) > 1 else ""
    return f"{field}{position} ({type_name(type(configs[index]))})"


def _checked(config: Any, index: int) -> TrackerConfig:
    if not isinstance(config, TrackerConfig):
        raise ConfigError(f"tracker[{index}] must be a TrackerConfig, got {show(config)} ({type(config).__name__})")
    return config


def announce(members: Sequence[Member], context: RunContext) -> None:
    """Log, at INFO, which run begins and which trackers are active; advise labels where names are not unique."""
    active = [member.tracker.name for member in members if not member.off]
    off = [f"{member.tracker.name} ({member.off})" for member in members if member.off]
    text = f"run {context.run_id}, {mode()}: trackers {', '.join(active) or 'none'}"
    _notices.logger.info("%s", f"{text}; off: {', '.join(off)}" if off else text)
    for name, count in Counter(active).items():
        if count > 1:
            _notices.log_once(
                ("same name", name),
                f"{count} trackers are called {name!r}, and get_tracker finds the first; give each a `label`",
            )
