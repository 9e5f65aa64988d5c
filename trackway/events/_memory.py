"""How much memory of a device is in use."""

from __future__ import annotations

import re
import sys
from typing import Any

__all__ = ["memory_bytes"]

_DEVICE = re.compile(r"(?P<kind>[a-z_]+)(?::(?P<index>\d{1,9}))?")


def memory_bytes(device: Any = None) -> int | None:
    """Return the bytes of a device's memory that arrays of this process take, or None where that is not known.

    Frameworks are neither imported nor initialised for it: before the first computation the answer is None. So it is
    for a device that is not there, and for CPUs, which do not count.

    Args:
        device: A device object of JAX or PyTorch; a text: "jax:1" is the second of `jax.local_devices()`, "gpu:0" and
            "tpu:0" the first of that kind, of JAX if that is in use and else of PyTorch, "cuda:1", "mps" and "xpu"
            are PyTorch's; without a number the first, of PyTorch's the current one. None takes the first accelerator
            of JAX, if that is in use and has one, else PyTorch's current one.

    Raises:
        TypeError: if *device* is neither of these.
        ValueError: if the text cannot be read.
    """
    if device is None:
        return _of_default()
    if isinstance(device, str):
        return _of_text(device)
    if callable(getattr(device, "memory_stats", None)):
        return _of_jax(device)
    if isinstance(getattr(device, "type", None), str) and hasattr(device, "index"):
        return _of_torch(device.type, device)
    raise TypeError(
        "memory_bytes takes a device of JAX or PyTorch, a text such as 'gpu:0', or None, got "
        f"{type(device).__name__}; an array's is `array.device`"
    )


def _of_default() -> int | None:
    for device in _jax_devices():
        if getattr(device, "platform", "cpu") != "cpu":
            return _of_jax(device)
    for kind in ("cuda", "xpu", "mps"):
        found = _of_torch(kind, None)
        if found is not None:
            return found
    return None


def _of_text(text: str) -> int | None:
    match = _DEVICE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(
            f"memory_bytes: {text!r} is no device; give one such as 'gpu:0', 'jax:1', 'cuda:0' or 'mps', or a device "
            "object"
        )
    kind, number = match["kind"], match["index"]
    index = int(number or 0)
    devices = [device for device in _jax_devices() if kind in {"jax", _kind(device)}]
    if index < len(devices):
        return _of_jax(devices[index])
    kind = "cuda" if kind == "gpu" else kind
    return _of_torch(kind, None if number is None else f"{kind}:{index}")


def _kind(device: Any) -> str:
    """The kind under which a device of JAX is asked for; what JAX calls cuda and rocm is a gpu."""
    platform = str(getattr(device, "platform", ""))
    return "gpu" if platform in {"cuda", "rocm"} else platform


def _jax_devices() -> list[Any]:
    """Return the devices of this process, if JAX has begun to use them."""
    # private, because all that is public starts JAX's backends, which takes memory of an accelerator
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    jax = sys.modules.get("jax")
    if jax is None or started is None or not started():
        return []
    try:
        return list(jax.local_devices())
    except Exception:
        return []


def _of_jax(device: Any) -> int | None:
    try:
        stats = device.memory_stats()
    except Exception:  # not every backend can say
        return None
    used = None if stats is None else stats.get("bytes_in_use")
    return None if used is None else int(used)


def _of_torch(kind: str, device: Any) -> int | None:
    module = getattr(sys.modules.get("torch"), kind, None)
    try:
        if module is None:
            return None
        if kind == "mps":
            return int(module.current_allocated_memory())
        return int(module.memory_allocated(device)) if module.is_initialized() else None
    except Exception:  # no such device, or a build of PyTorch without it
        return None
