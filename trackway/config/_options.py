"""Checks of the options that all backends have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trackway.config._errors import show
from trackway.errors import ConfigError
from trackway.tracker import BackgroundPolicy, FilterPolicy

if TYPE_CHECKING:
    from trackway.config._base import TrackerConfig

__all__ = ["check_options", "filter_policy"]

_CHOICES = {"on_init_error": ("raise", "skip"), "ranks": ("primary", "all")}


def check_options(config: TrackerConfig) -> None:
    """Turn lists into tuples, and refuse values that no type would catch when a config is made in Python.

    Raises:
        ConfigError: naming the option, what it got and what is allowed.
    """
    for name in ("include", "exclude"):
        setattr(config, name, _names(name, getattr(config, name)))
    for name, allowed in _CHOICES.items():
        if getattr(config, name) not in allowed:
            raise _wrong(name, f"one of {', '.join(allowed)}", getattr(config, name))
    if isinstance(config.every_steps, bool) or not isinstance(config.every_steps, int) or config.every_steps < 1:
        raise _wrong("every_steps", "an integer of at least 1", config.every_steps)
    if config.label is not None and not (isinstance(config.label, str) and config.label.strip()):
        raise _wrong("label", "a name or null", config.label)
    if not isinstance(config.prefix, str):
        raise _wrong("prefix", "text", config.prefix)
    if not isinstance(config.rename, dict) or not all(
        isinstance(x, str) for pair in config.rename.items() for x in pair
    ):
        raise _wrong("rename", "a mapping of metric names to names", config.rename)
    if not isinstance(config.background, (bool, BackgroundPolicy)):
        raise _wrong("background", "true, false or a BackgroundPolicy", config.background)
    if config.required and config.on_init_error == "skip":
        raise ConfigError(
            "required: true and on_init_error: skip contradict each other: the one stops a run without this tracker, "
            "the other goes on; leave one of them out"
        )


def _wrong(name: str, expected: str, value: Any) -> ConfigError:
    return ConfigError(f"{name} must be {expected}, got {show(value)}")


def _names(option: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise _wrong(option, "a list of globs such as ['train/*']", value)
    return tuple(value)


def filter_policy(config: TrackerConfig) -> FilterPolicy:
    """Return what *config* lets its tracker see."""
    return FilterPolicy(
        every_steps=config.every_steps,
        include=config.include,
        exclude=config.exclude,
        prefix=config.prefix,
        rename=config.rename,
    )
