"""Variants of one piece of work measured in turns, and the table of what came out."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Variant = Callable[[int], float]
"""Does that many steps and returns the seconds of one."""

BATCH_SECONDS = 0.1
"""How long one variant runs at a stretch: long beside the clock, short beside the moods of a busy machine."""


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        name: What is compared to what.
        values: One ratio for each round, or one quantity where *unit* says so.
        at_most: Largest median that is good; None for no bound.
        at_least: Smallest median that is good; None for no bound.
        unit: "x" for ratios.
    """

    name: str
    values: list[float]
    at_most: float | None = None
    at_least: float | None = None
    unit: str = "x"

    @property
    def median(self) -> float:
        """The figure that counts."""
        return statistics.median(self.values)

    @property
    def missed(self) -> bool:
        """Whether the median is outside its bounds, or no number."""
        return not (
            (self.at_most is None or self.median <= self.at_most)
            and (self.at_least is None or self.median >= self.at_least)
        )

    def line(self, width: int) -> str:
        """Return the line, its name *width* wide: name, median, middle half of the rounds, bound, verdict."""
        bounds = [f"<= {self.at_most:g}"] if self.at_most is not None else []
        bounds += [f">= {self.at_least:g}"] if self.at_least is not None else []
        verdict = ("MISSED" if self.missed else "ok") if bounds else ""
        low, _, high = statistics.quantiles(self.values, n=4) if len(self.values) > 1 else self.values * 3
        measured = f"{self.median:8.3f}{self.unit:<3} {low:8.3f} .. {high:<8.3f} {len(self.values):>3}"
        return f"{self.name:<{width}} {measured}  {', '.join(bounds):<10} {verdict}".rstrip()


def print_table(figures: Sequence[Figure]) -> None:
    """Print all figures under one heading."""
    width = max((len(figure.name) for figure in figures), default=0)
    heading = f"{'figure':<{width}} {'median':>8}    {'middle half of rounds':<24}  {'bound':<10} verdict"
    print(f"\n{heading}\n{'-' * len(heading)}")
    for figure in figures:
        print(figure.line(width))


@dataclass
class Turns:
    """Measures variants in turns.

    Attributes:
        rounds: How often each variant has its turn.
        deadline: Value of `time.monotonic` by which everything has to be measured; None for all the time there is.
        comparisons: How many comparisons share the time up to the deadline.
    """

    rounds: int
    deadline: float | None = None
    comparisons: int = 1
    _done: int = field(default=0, init=False)

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def compare(self, variants: Mapping[str, Variant], *, calibrated: bool = True) -> dict[str, list[float]]:
        """Return the seconds of a step of each variant, one for each round.

        Every round runs every variant once, in a new random order, so that who comes first does not matter and
        whatever else the machine does meets all of them.

        Args:
            variants: What is compared.
            calibrated: Run each variant as many steps as take `BATCH_SECONDS`; otherwise one step.
        """
        print(".", end="", file=sys.stderr, flush=True)
        steps = dict.fromkeys(variants, 1)
        if calibrated:
            for name, variant in variants.items():
                variant(3)  # compiles
                steps[name] = max(5, min(2000, round(BATCH_SECONDS / min(variant(5) for _ in range(3)))))
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        until = self._share()
        for turn in range(self.rounds):
            if turn >= 3 and time.monotonic() > until:
                break
            for name in random.sample(list(variants), k=len(variants)):
                seconds[name].append(variants[name](steps[name]))
        return seconds

    def _share(self) -> float:
        """Return when the comparison that starts now has to end."""
        if self.deadline is None:
            return float("inf")
        now = time.monotonic()
        left = max(1, self.comparisons - self._done)
        self._done += 1
        return now + (self.deadline - now) / left


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Return the quotients of the same rounds."""
    return [a / b for a, b in zip(above, below, strict=True)]
