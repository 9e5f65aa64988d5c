"""What a run costs: every figure that trackway keeps to, in one table.

    python benchmarks/run.py [--quick] [--only GROUP ...]

Ratios are medians over rounds in which the variants take turns in one process, so that a busy machine hits them all;
times are medians over such rounds. Each group has a process of its own. Exits with 1 if a bound is missed. Wants
polars, JAX, and the two trackers of `running/others.py`: `make bench` installs them.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import multiprocessing
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import orjson
from figures import Figure, print_table
from running.rows import FULL, QUICK, Sizes

GROUPS = ("cost", "others", "tail", "names", "outage", "slow", "device", "watch", "long")
"""Modules of `running`, each with a function `figures`."""


def measure(group: str, sizes: Sizes) -> list[Figure]:
    """Return the figures of a group; called in a process of its own."""
    logging.getLogger("trackway").addHandler(logging.NullHandler())  # what is provoked on purpose is not printed
    return list(importlib.import_module(f"running.{group}").figures(sizes))


def measure_apart(group: str, sizes: Sizes) -> list[Figure]:
    """Return the figures of a group, measured by a fresh interpreter."""
    started = time.monotonic()
    print(f"{group} ", end="", file=sys.stderr, flush=True)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(measure, group, sizes).result()
    print(f" {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="sizes so small that verdicts mean nothing")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="groups to measure; default: all")
    options = parser.parse_args()
    for variable in [name for name in os.environ if name.startswith("TRACKWAY_")]:
        del os.environ[variable]
    sizes = QUICK if options.quick else FULL
    figures = [figure for group in options.only for figure in measure_apart(group, sizes)]
    python = f"Python {platform.python_version()}, orjson {orjson.__version__}"
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} CPU cores ({platform.machine()}), {python}, load {load}")
    print_table(figures)
    missed = sum(figure.missed for figure in figures)
    print(f"\n{missed} of {len(figures)} figures out of bounds" if missed else "\nall figures within their bounds")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
