"""Checks of what a run is started with, and which of its trackers is the run directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from trackway.config._base import TrackerConfig
from trackway.config._errors import did_you_mean, show
from trackway.config._run_id import check_run_id
from trackway.config._trackers import Trackers, place
from trackway.errors import ConfigError
from trackway.store import LocalTracker
from trackway.tracker import Tracker, leaves

if TYPE_CHECKING:
    from trackway.backends.local import LocalConfig

__all__ = ["Entry", "check_run_options", "entries_of", "store_config", "without_default"]

Entry: TypeAlias = TrackerConfig | Tracker
"""A tracker that is to be started, or one that is."""

_CHOICES = {"resume": ("allow", "must", "never"), "step_policy": ("monotonic", "allow", "error")}
_FOREVER = 1e9
_LEAVES_OUT = {"every_steps": 1, "include": (), "exclude": (), "prefix": "", "rename": {}, "background": False}


def without_default(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return *entries*, or none if they are what is there by default, for a run that is to have no run directory."""
    return () if tuple(entries) == tuple(Trackers()) else tuple(entries)


def entries_of(trackers: Any) -> tuple[Entry, ...]:
    """Return the configs and trackers that *trackers* says: one, several, or None for the default.

    Raises:
        ConfigError: if an item is neither.
    """
    if trackers is None:
        return tuple(Trackers())
    if isinstance(trackers, TrackerConfig | Tracker):
        return (trackers,)
    if isinstance(trackers, str | bytes | Mapping) or not isinstance(trackers, Iterable):
        raise _no_entry("trackers", trackers)
    entries = tuple(trackers)
    for index, entry in enumerate(entries):
        if not isinstance(entry, TrackerConfig | Tracker):
            raise _no_entry(f"trackers[{index}]", entry)
    return entries


def _no_entry(where: str, value: Any) -> ConfigError:
    return ConfigError(
        f"{where} must be a TrackerConfig or a Tracker, got {show(value)} ({type(value).__name__}); what stands in "
        "YAML becomes one by `draccus.decode(Trackers, ...)`"
    )


def check_run_options(
    *,
    run_id: Any,
    dir: Any,  # noqa: A002 - the field's word
    resume: Any,
    step_policy: Any,
    print: Any,  # noqa: A002 - likewise
    strict_json: Any,
    store: Any,
    agree_timeout: Any,
) -> None:
    """Refuse values that no type would catch when a run is started in Python.

    Raises:
        ConfigError: naming the option, what it got and what is allowed.
    """
    if run_id is not None:
        check_run_id(run_id)
    if dir is not None and not (isinstance(dir, str | os.PathLike) and os.fspath(dir)):
        raise ConfigError(f"dir must be a folder such as 'runs', or null, got {show(dir)}")
    for name, value in (("resume", resume), ("step_policy", step_policy)):
        if value not in _CHOICES[name]:
            guess = did_you_mean(value, _CHOICES[name]) if isinstance(value, str) else ""
            raise ConfigError(f"{name} must be one of {', '.join(_CHOICES[name])}, got {show(value)}{guess}")
    for name, value in (("strict_json", strict_json), ("store", store)):
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, got {show(value)}")
    if not isinstance(print, bool) and not callable(print):
        raise ConfigError(f"print must be true, false or a callable that takes a line of text, got {show(print)}")
    if type(agree_timeout) not in {int, float} or not 0 < agree_timeout < _FOREVER:
        raise ConfigError(f"agree_timeout must be a number of seconds above 0, got {show(agree_timeout)}")
    if resume == "must" and not store:
        raise ConfigError("resume: must needs the run directory, which store: false opts out of; leave one of them out")


def store_config(
    entries: Sequence[Entry],
    dir: str | os.PathLike[str] | None,  # noqa: A002 - the field's word
    *,
    strict_json: bool,
    store: bool,
) -> LocalConfig | None:
    """Return the config of the run directory, with *dir* and *strict_json* in it; None for a run without one.

    Raises:
        ConfigError: if there are two, if there is one although *store* is False, if it was given options that keep
            rows from it or another *dir*, or is started already.
    """
    local = cast("type[LocalConfig]", TrackerConfig.get_choice_class("local"))
    found = [(index, entry) for index, entry in enumerate(entries) if isinstance(entry, local)]
    _refuse_started(entries)
    if len(found) > 1:
        where = " and ".join(place(entries, index, "trackers") for index, _ in found)
        raise ConfigError(f"{where} are two run directories, and a run has one; leave one of them out")
    if found and not store:
        where = place(entries, found[0][0], "trackers")
        raise ConfigError(f"store: false opts out of the run directory, which {where} asks for; leave one of them out")
    if not store:
        return None
    config = local()
    for index, entry in found:
        config = entry
        _refuse_partial(entry, place(entries, index, "trackers"))
    return replace(config, dir=_one_dir(dir, config), strict_json=strict_json or config.strict_json)


def _refuse_started(entries: Sequence[Entry]) -> None:
    for index, entry in enumerate(entries):
        if isinstance(entry, Tracker) and any(isinstance(leaf, LocalTracker) for leaf in leaves(entry)):
            raise ConfigError(
                f"trackers[{index}] is a LocalTracker that is open already; the run opens its directory itself: give "
                "`LocalConfig(dir=...)` and a run_id instead, or make the run by `trackway.Run(trackers, store)`"
            )


def _refuse_partial(config: LocalConfig, where: str) -> None:
    for name, neutral in _LEAVES_OUT.items():
        value = getattr(config, name)
        if value != neutral:
            raise ConfigError(
                f"{where}: {name}: {show(value)} is not for the run directory, which has every row of the run as it "
                "was logged; set it on the other trackers, and leave it out here"
            )


def _one_dir(given: str | os.PathLike[str] | None, config: LocalConfig) -> str | None:
    """The folder of run directories that *given* and the config agree on, absolute; None where neither says one."""
    folder = None if given is None else _absolute(os.fspath(given))
    own = None if config.dir is None else _absolute(config.dir)
    if folder is not None and own is not None and folder != own:
        raise ConfigError(f"dir is {os.fspath(given or '')!r}, and that of local {config.dir!r}; leave one of them out")
    return folder or own


def _absolute(folder: str) -> str:
    if not folder or "://" in folder or "\0" in folder:  # refused where it is opened
        return folder
    return os.path.abspath(os.path.expanduser(folder))  # noqa: PTH100, PTH111 - resolve() would follow links
