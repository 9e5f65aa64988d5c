"""Measuring variants of compiled code: what `figures` has for any code, and the machine that JAX runs on."""

from __future__ import annotations

import os
import platform

import jax
from figures import Figure, Turns, Variant, print_table, ratios

__all__ = ["Figure", "Turns", "Variant", "print_machine", "print_table", "ratios"]


def print_machine() -> None:
    """Print what the figures depend on."""
    devices = jax.devices()
    print(
        f"{os.cpu_count()} CPU cores ({platform.machine()}), {len(devices)} {devices[0].platform} device(s) "
        f"({devices[0].device_kind}), Python {platform.python_version()}, jax {jax.__version__}"
    )
