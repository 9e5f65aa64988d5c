"""Waiting for arrays that a device is computing, whatever framework made them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["wait_for"]


def wait_for(tree: Any) -> None:
    """Block until the arrays in *tree* are computed; raises what their computation raises."""
    jax: Any = sys.modules.get("jax")
    torch: Any = sys.modules.get("torch")
    leaves = list(_leaves(tree) if jax is None else _leaves_by_jax(jax, tree))
    if hasattr(jax, "block_until_ready"):
        jax.block_until_ready(leaves)  # all at once, which is faster
    else:
        for leaf in leaves:
            if callable(block := getattr(leaf, "block_until_ready", None)):
                block()
    if hasattr(torch, "Tensor"):
        devices = {str(leaf.device): leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
        for device in devices.values():
            _synchronise(torch, device)


def _synchronise(torch: Any, device: Any) -> None:
    """Wait for a PyTorch device, which does its work in order; a CPU is never behind."""
    if device.type == "mps":
        torch.mps.synchronize()
    elif device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def _leaves_by_jax(jax: Any, tree: Any) -> Iterator[Any]:
    try:
        yield from jax.tree.leaves(tree)
    except (AttributeError, TypeError, ValueError):  # half imported; or keys that cannot be sorted
        yield from _leaves(tree)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _leaves(value)
    elif tree is not None:
        yield tree
