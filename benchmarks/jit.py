"""What logging from compiled code costs, beside the same program written without trackway.

    python benchmarks/jit.py [rounds]

Every line but the last is a ratio: the variants run in turns, in one process, and what counts is the median of the
ratios of the same rounds. In a step loop every step needs the weights that the one before it made, and the host
waits for nothing but the last. Exits with 1 if a bound is missed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from compiled.groups import common_figures
from compiled.loops import compilation, host, rows_of_a_scan
from compiled.measure import Figure, Turns, print_machine, print_table
from compiled.steps import work_of

SHORT, LONG = 50e-6, 1e-3
"""Seconds of a step."""


def figures(rounds: int) -> Iterator[Figure]:
    """Make every comparison."""
    short, long = work_of(SHORT), work_of(LONG)
    for work, seconds in (short, long):
        print(f"hidden layers of {work.width} units, step of {seconds * 1e6:.0f} us")
    turns = Turns(rounds)
    yield from common_figures(turns, (short[0], "50 us"), (long[0], "1 ms"))
    yield from rows_of_a_scan(turns)
    yield from compilation(Turns(max(3, rounds // 6)))
    yield from host(turns)


def main() -> int:
    """Measure, print, and judge."""
    print_machine()
    measured = list(figures(int(sys.argv[1]) if len(sys.argv) > 1 else 61))
    print_table(measured)
    return int(any(figure.missed for figure in measured))


if __name__ == "__main__":
    raise SystemExit(main())
