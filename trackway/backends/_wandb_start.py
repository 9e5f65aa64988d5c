"""Starting a W&B run: settings, ids, and what to do where W&B cannot be reached."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackway import _notices
from trackway.values import redacted_text
from trackway.values._redact import holds_secret, redacted_command

__all__ = ["code_root", "device_facts", "in_use", "is_left_out", "legal_id", "legal_name", "start", "xla_dump_folder"]

_MAX = 128
_OF_ID = re.compile(r"[/\\#?%:\s\x00-\x1f]")
_OF_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NO_CODE = frozenset({"site-packages", "node_modules", "wandb", "__pycache__"})
_AWAY = ("no api key configured", "timed out", "dial tcp", "no such host", "connection")


def legal_id(run_id: str) -> str:
    """Return *run_id*, or what stands for it where W&B does not take it."""
    return _legal(run_id, _OF_ID)


def legal_name(name: str) -> str:
    """Return the name of an artifact, or what stands for it where W&B does not take it."""
    return _legal(name, _OF_NAME)


def _legal(name: str, illegal: re.Pattern[str]) -> str:
    legal = illegal.sub("-", name)
    if legal == name and len(name) <= _MAX and name.strip("."):
        return name
    mark = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]  # two names stay two
    return f"{legal[: _MAX - 9]}-{mark}"


def start(*, fall_back: bool, timeouts: tuple[float, float], **arguments: Any) -> Any:
    """Return a new run of `wandb.init`.

    Args:
        fall_back: Whether a run that cannot be started online is started offline, with a warning.
        timeouts: Seconds for `wandb.init` and for `Run.finish`.
        arguments: What `wandb.init` takes.

    Raises:
        wandb.Error: if W&B refuses the run, or cannot be reached and *fall_back* is False.
    """
    import wandb

    settings: dict[str, Any] = {
        "init_timeout": timeouts[0],
        "finish_timeout": timeouts[1],
        "finish_timeout_raises": True,
    }
    if "WANDB_SILENT" not in os.environ:
        settings["silent"] = True
    if wandb.run is not None:
        arguments["reinit"] = "create_new"  # another run of this process goes on
    try:
        return _init(wandb, settings, arguments)
    except wandb.Error as error:
        taken = not _forgot_failed_start(wandb)
        if not fall_back or not _is_away(error):
            raise
        reason = redacted_text(str(error)).strip().partition("\n")[0]
    wanted = arguments.get("id")
    arguments |= {"mode": "offline", "resume": None}
    if taken and wanted is not None:
        arguments["id"] = _legal(f"{wanted}-offline", _OF_ID)
    run = _init(wandb, settings, arguments)
    _notices.logger.warning(
        "wandb: OFFLINE, because %s. The run is kept in %s; upload it later with `wandb sync %s%s`",
        reason,
        run.settings.sync_dir,
        f"--id {shlex.quote(wanted)} " if taken and wanted is not None else "",
        run.settings.sync_dir,
    )
    return run


def _init(wandb: Any, settings: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Call `wandb.init`, which sends the command line along: without the secrets in it."""
    given: list[str] = sys.argv
    told = redacted_command(given)
    if told == given:
        return wandb.init(settings=wandb.Settings(**settings), **arguments)
    sys.argv = told  # where W&B reads it; it has no setting for it
    try:
        return wandb.init(settings=wandb.Settings(**settings), **arguments)
    finally:
        if sys.argv is told:
            sys.argv = given


def _is_away(error: Exception) -> bool:
    """Whether W&B cannot be reached, or there is no key for it, as opposed to its saying no."""
    text = str(error).lower()
    return any(word in text for word in _AWAY)


def _forgot_failed_start(wandb: Any) -> bool:
    """Free the id of a run that was not started, which W&B holds; return False where that would end another run."""
    if wandb.run is not None:
        return False
    wandb.teardown()
    return True


def in_use(run: Any) -> int:
    """Return the first step that W&B takes of *run*, which others may have logged to."""
    step = int(run.starting_step or 0)
    try:
        return max(step, int(run.step))
    except Exception:
        return step


def code_root(save_code: bool | str) -> Path | None:
    """Return the folder whose code is to be saved: the one given, else the repository of the program, or its folder."""
    if isinstance(save_code, str):
        return Path(save_code)
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if not save_code or program is None:
        return None
    folder = Path(program).resolve().parent
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)


def is_left_out(path: str, root: str) -> bool:
    """Tell whether a file of code is not to be saved: what is no code of the project, and what has a secret in it."""
    parts = Path(os.path.relpath(path, root)).parts
    if any(part.startswith(".") or part in _NO_CODE for part in parts):
        return True
    try:
        secret = holds_secret(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False  # W&B finds out itself
    if secret:
        _notices.logger.warning("wandb: %s is not saved with the code: there is a secret in it", path)
    return secret


def xla_dump_folder() -> Path | None:
    """Return the folder that XLA is told to dump programs to, by `--xla_dump_to` in XLA_FLAGS."""
    try:
        flags = shlex.split(os.environ.get("XLA_FLAGS", ""))
    except ValueError:
        return None
    found = [flag.partition("=")[2] for flag in flags if flag.startswith("--xla_dump_to=")]
    return Path(found[-1]) if found and found[-1] else None


def device_facts() -> dict[str, Any]:
    """Return what JAX computes on, if it has begun to: it is neither imported nor started for this."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    jax = sys.modules.get("jax")
    if jax is None or not getattr(bridge, "_backends", None):
        return {}
    devices = jax.devices()
    return {
        "jax": jax.__version__,
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "process_count": jax.process_count(),
    }
