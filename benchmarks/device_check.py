"""What logging from compiled code costs on the accelerator of this machine, in at most four minutes.

    python benchmarks/device_check.py [minutes]

The sizes are chosen such that a training step takes about 0.2 ms and about 2 ms on this device. As in `jit.py`, a
line is the median of the ratios of the same rounds. The bounds are those of `jit.py`. Exits with 1 if one is missed.
"""

from __future__ import annotations

import sys
import time

import jax
from compiled.groups import COMPARISONS, common_figures
from compiled.measure import Turns, print_machine, print_table
from compiled.steps import work_of

SHORT, LONG = 0.2e-3, 2e-3
"""Seconds of a step."""

RESERVE = 0.15
"""Part of the time for the compilation of what the last comparison runs, and for ending."""


def main() -> int:
    """Measure, print, and judge."""
    started = time.monotonic()
    seconds = 60 * (float(sys.argv[1]) if len(sys.argv) > 1 else 4.0)
    print_machine()
    sizes = []
    for aim in (SHORT, LONG):
        work, step = work_of(aim)
        print(f"hidden layers of {work.width} units, step of {step * 1e3:.2f} ms")
        sizes.append((work, f"{step * 1e3:.1f} ms"))
    turns = Turns(31, deadline=started + (1 - RESERVE) * seconds, comparisons=COMPARISONS)
    measured = list(common_figures(turns, *sizes))
    print_table(measured)
    device = jax.devices()[0]
    print(f"measured on {device.platform} ({device.device_kind}) in {time.monotonic() - started:.0f} s")
    return int(any(figure.missed for figure in measured))


if __name__ == "__main__":
    raise SystemExit(main())
