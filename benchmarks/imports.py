"""What importing trackway costs over Python and NumPy, and which heavy packages it brings along.

    python benchmarks/imports.py [runs]

Prints the milliseconds that each import takes after `import numpy`, over fresh processes: the least, which is what the
import costs, the median, which has the machine's other work in it, and the bound for the least.
Exits with 1 if a bound is missed or a package is imported that must not be.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

BOUNDS = {"trackway": 60.0, "trackway.config": 60.0}
"""Milliseconds; that of `trackway.config` is over `trackway`."""

HEAVY = ("jax", "torch", "tensorboardX", "tensorboard", "wandb", "trackio", "mlflow", "pandas")
FORBIDDEN = {"trackway": (*HEAVY, "draccus", "fsspec"), "trackway.config": HEAVY}

PROGRAM = """
import importlib, sys, time
import numpy
for name in {names!r}:
    start = time.perf_counter()
    importlib.import_module(name)
    print(name, 1000 * (time.perf_counter() - start), ",".join(p for p in {forbidden!r}[name] if p in sys.modules))
"""


def measure(runs: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the milliseconds of each run per import, and the forbidden packages that each brought along."""
    program = PROGRAM.format(names=list(BOUNDS), forbidden=FORBIDDEN)
    times: dict[str, list[float]] = {name: [] for name in BOUNDS}
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as cache:
        # an installed package comes compiled; a checkout may not keep its byte code
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for run in range(runs + 1):
            output = subprocess.run(
                [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
            ).stdout
            for line in output.splitlines() if run else ():
                name, milliseconds, packages = line.split(" ")
                times[name].append(float(milliseconds))
                found[name] = packages
    return times, found


def main() -> int:
    """Measure, print, and judge."""
    times, found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
    missed = False
    for name, bound in BOUNDS.items():
        least, median = min(times[name]), statistics.median(times[name])
        bad = least > bound or found[name]
        missed = missed or bool(bad)
        extra = f", imports {found[name]}" if found[name] else ""
        print(
            f"{name:<16} {least:6.1f} ms, median {median:6.1f} (at most {bound:.0f}){extra}{'  MISSED' if bad else ''}"
        )
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
