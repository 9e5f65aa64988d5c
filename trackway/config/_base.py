"""The base of all backends' configurations."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, overload

import draccus

from trackway.config._build import build, context_for
from trackway.config._options import check_options
from trackway.config._registry import Registry, type_name
from trackway.tracker import BackgroundPolicy, Tracker

__all__ = ["TrackerConfig"]

T = TypeVar("T")


@dataclass
class TrackerConfig(draccus.PluginRegistry, ABC, discover_packages_path="trackway.backends"):
    """The configuration of one backend: a dataclass that makes its tracker.

    A backend registers a dataclass of its own under the `type` that YAML names it by:

    ```python
    @TrackerConfig.register_subclass("mine")
    @dataclass
    class MineConfig(TrackerConfig):
        path: str = "mine.log"

        def init(self, run_id: str | None) -> MineTracker:
            return MineTracker(self.path)
    ```

    The options below are common to all backends and keyword-only. A backend that wants another default for one
    declares it again, keyword-only: `background: bool | BackgroundPolicy = field(default=True, kw_only=True)`.

    Attributes:
        label: The tracker's name in `get_tracker` and in reports, where its type does not tell it from another.
        every_steps: Only rows whose step is a multiple of it reach the tracker. Rows holding media pass, and so do
            summary, hyper-parameters, artifacts and events.
        include: Globs on metric names such as `train/*`; where given, only names matching one of them pass.
        exclude: Globs on metric names that do not pass.
        prefix: Put before every metric name.
        rename: Metric name to the name under which this tracker gets it.
        required: Whether a failure of this tracker stops the run, by a `FatalTrackerError`.
        on_init_error: Whether a tracker that cannot be started stops the program ("raise") or is left out with a
            logged warning ("skip").
        ranks: Whether only rank 0 of a job of several processes has the tracker ("primary") or every one ("all").
        background: Whether the tracker is called on a thread of its own, so that it cannot slow training down; a
            `BackgroundPolicy` sets the limits.

    Raises:
        ConfigError: if an option has a value that is not allowed.
    """

    label: str | None = field(default=None, kw_only=True)
    every_steps: int = field(default=1, kw_only=True)
    include: tuple[str, ...] = field(default=(), kw_only=True)
    exclude: tuple[str, ...] = field(default=(), kw_only=True)
    prefix: str = field(default="", kw_only=True)
    rename: dict[str, str] = field(default_factory=dict, kw_only=True)
    required: bool = field(default=False, kw_only=True)
    on_init_error: Literal["raise", "skip"] = field(default="raise", kw_only=True)
    ranks: Literal["primary", "all"] = field(default="primary", kw_only=True)
    background: bool | BackgroundPolicy = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_options(self)

    @abstractmethod
    def init(self, run_id: str | None) -> Tracker:
        """Return the bare tracker, ready to log; the backend's library is imported here and not before.

        `run_context()` tells more about the run while `build` is at work.

        Args:
            run_id: The run's id, or None to let the backend choose.

        Raises:
            ConfigError: if the backend's library is missing, see `missing_extra`.
        """

    def build(self, run_id: str | None = None) -> Tracker:
        """Return the tracker, started, with the common options applied.

        In a process that is not to have it (`TRACKWAY_MODE=disabled`, or a rank other than 0 under
        `ranks: primary`), it is a `NoopTracker` of the same name, and nothing is started or imported.

        Args:
            run_id: The run's id. None takes `TRACKWAY_RUN_ID`, else makes one up.

        Raises:
            ConfigError: if *run_id* is not a name, an option or environment variable is wrong, or the tracker cannot
                be started and `on_init_error` is "raise".
        """
        return build(self, context_for(run_id), type_name(type(self))).tracker

    @classmethod
    def default_choice_name(cls) -> str | None:
        """Return the type that is meant where none is given."""
        return "local"

    @overload
    @classmethod
    def register_subclass(cls, name: str, choice_type: type[T]) -> type[T]: ...
    @overload
    @classmethod
    def register_subclass(cls, name: str) -> Callable[[type[T]], type[T]]: ...
    @classmethod
    def register_subclass(cls, name: str, choice_type: Any = None) -> Any:
        """Make a config class known under the `type` *name*; without *choice_type*, return a decorator that does.

        A name that a built-in backend or an earlier plugin has stays theirs, and a logged warning names both.

        Raises:
            ConfigError: if the class is not derived from `TrackerConfig`.
        """
        if choice_type is None:
            return functools.partial(cls.register_subclass, name)
        _registry.register(name, choice_type)
        return choice_type

    @classmethod
    def get_choice_class(cls, name: str) -> Any:
        """Return the config class of the type *name*, importing its module if need be.

        Raises:
            ConfigError: if there is no such type, or its module cannot be imported; it lists the known types and
                those that failed to load.
        """
        return _registry.find(name)

    @classmethod
    def get_known_choices(cls) -> dict[str, Any]:
        """Return all types that can be loaded, by name; modules that cannot be imported are left out."""
        return _registry.all()


_registry = Registry(TrackerConfig._choice_registry, TrackerConfig)  # noqa: SLF001 - where draccus looks names up
