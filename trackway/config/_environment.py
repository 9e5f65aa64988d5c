"""The environment variables that trackway reads."""

from __future__ import annotations

import os
from typing import Literal, cast

from trackway.config._errors import did_you_mean
from trackway.config._run_id import check_run_id
from trackway.errors import ConfigError

__all__ = ["Mode", "base_dir", "mode", "run_id_from_environment"]

Mode = Literal["online", "offline", "disabled"]
_MODES = ("online", "offline", "disabled")


def mode() -> Mode:
    """Return what `TRACKWAY_MODE` asks for; "online" where it is not set.

    "disabled" makes every backend a `NoopTracker` of its name, whatever the configuration says; "offline" is for
    backends that talk to a service: they keep what they get on disk.

    Raises:
        ConfigError: if the variable holds anything else.
    """
    value = os.environ.get("TRACKWAY_MODE", "").strip().lower() or "online"
    if value not in _MODES:
        off = value in {"off", "none", "no", "false", "0", "disable", "noop"}
        hint = "; did you mean disabled?" if off else did_you_mean(value, _MODES)
        raise ConfigError(f"TRACKWAY_MODE must be one of {', '.join(_MODES)}, got {value!r}{hint}")
    return cast("Mode", value)


def base_dir() -> str:
    """Return the folder (or fsspec URL) under which run directories are made: `TRACKWAY_DIR`, or "runs"."""
    return os.environ.get("TRACKWAY_DIR", "").strip() or "runs"


def run_id_from_environment() -> str | None:
    """Return `TRACKWAY_RUN_ID`, checked, or None where it is not set or empty.

    Raises:
        ConfigError: if it is not a name.
    """
    value = os.environ.get("TRACKWAY_RUN_ID", "").strip()
    if not value:
        return None
    try:
        return check_run_id(value)
    except ConfigError as error:
        raise ConfigError(f"TRACKWAY_RUN_ID: {error}") from None
