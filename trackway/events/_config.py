"""What an event logger is made of, as a configuration."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from trackway.errors import ConfigError

if TYPE_CHECKING:
    from trackway.events._logger import EventLogger

__all__ = ["EventsConfig", "absolute_path", "check_every_steps", "check_flag", "check_memory", "level_number"]

_MAX_SHOWN = 80


@final
@dataclass
class EventsConfig:
    """Where the events of a run go.

    ```yaml
    events:
      every_steps: 10
      json_file: events.jsonl
      hooks: ["my_project.hooks:on_event"]
    ```

    Attributes:
        level: The least level of events that become text: "INFO" shows all, "ERROR" `train_failed` and alerts of
            that level alone, for all others are INFO. JSON lines and hooks get every event.
        file: A file that gets the text, beside standard output; None for none. A relative path is one of the working
            directory, as it is when the logger is made.
        json_file: A file that gets every event as a line of JSON; None for none.
        every_steps: Only those `train_step` events whose step is a multiple of it are passed on, to anything. Other
            events always are.
        console: Whether the text goes to standard output.
        memory: Whether `train_step` events tell the `memory_bytes` of a device: None of the accelerator in use, if
            there is one, False never; a text such as "cuda:1" names the device.
        hooks: Callables `(event, payload)` or objects with `on_event(event, payload)`; in YAML the import path of one,
            "package.module:name". A class is instantiated.
        hooks_serial: Whether hooks are called by one thread at a time.

    Raises:
        ConfigError: if a value is not allowed.
    """

    level: str = "INFO"
    file: str | None = None
    json_file: str | None = None
    every_steps: int = 1
    console: bool = True
    memory: bool | str | None = None
    hooks: tuple[Any, ...] = ()
    hooks_serial: bool = False

    def __post_init__(self) -> None:
        from trackway.events._hooks import check_hooks

        level_number(self.level)
        check_files(absolute_path(self.file, "file"), absolute_path(self.json_file, "json_file"))
        check_every_steps(self.every_steps)
        check_memory(self.memory)
        for name in ("console", "hooks_serial"):
            check_flag(getattr(self, name), name)
        self.hooks = check_hooks(self.hooks)

    def build(self) -> EventLogger:
        """Return the logger; hooks are imported now.

        Raises:
            ConfigError: if a hook cannot be imported.
        """
        from trackway.events._logger import EventLogger

        return EventLogger(
            self.level,
            self.file,
            self.json_file,
            self.every_steps,
            self.console,
            self.memory,
            self.hooks,
            hooks_serial=self.hooks_serial,
        )


def level_number(level: Any) -> int:
    """Return the number of a level of Python's `logging`, given by name or number."""
    names = logging.getLevelNamesMapping()
    if isinstance(level, str):
        number = names.get(level.strip().upper())
    else:
        number = level if type(level) is int and level >= 0 else None
    if number is None:
        known = sorted(names, key=lambda name: (names[name], name))
        raise ConfigError(
            f"events.level must be one of {', '.join(known)}, or a number of at least 0, got {shown(level)}"
            f"{close_to(level.strip().upper(), known) if isinstance(level, str) else ''}"
        )
    return number


def absolute_path(path: Any, name: str) -> str | None:
    """Return the path *name* as an absolute one, by the working directory as it is now; `~` is the home directory."""
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"events.{name} must be the path of a file, or null, got {shown(path)}")
    text = os.fsdecode(path)
    if not text or "\0" in text or "://" in text or text.endswith(os.sep):
        raise ConfigError(f"events.{name} must be the path of a file on this machine, or null, got {shown(text)}")
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - resolve() would follow links


def check_files(file: str | None, json_file: str | None) -> None:
    """Refuse one file for both."""
    if file is not None and file == json_file:
        raise ConfigError(f"events.file and events.json_file are both {shown(file)}; text and JSON need a file each")


def check_every_steps(every_steps: Any) -> int:
    """Return the cadence, which is an integer of at least 1."""
    if type(every_steps) is not int or every_steps < 1:
        raise ConfigError(f"events.every_steps must be an integer of at least 1, got {shown(every_steps)}")
    return every_steps


def check_flag(value: Any, name: str) -> bool:
    """Return *value*, which is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"events.{name} must be true or false, got {shown(value)}")
    return value


def check_memory(memory: Any) -> Any:
    """Return what `memory_bytes` is asked for, or False: a text, a device, or None for the one in use."""
    from trackway.events._memory import memory_bytes

    if memory is True:
        return None
    if memory is None or memory is False:
        return memory
    try:
        memory_bytes(memory)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"events.memory must be false, null or a device such as 'gpu:0', got {shown(memory)}: {error}"
        ) from error
    return memory


def shown(value: Any) -> str:
    """Return *value* as a short text for an error."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def close_to(name: str, known: Any) -> str:
    """Return "; did you mean ...?" where one of *known* is close to *name*, else an empty text."""
    import difflib  # only for errors

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
