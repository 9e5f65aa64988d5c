"""Fuzz the capture layer: ``python tests/capture/fuzz/fuzz.py --seeds 0:2000``.

Each seed is a random program, run through JAX with its logs captured, and through a Python loop that writes every
sample down. Failures are shown with a smaller program that fails alike; ``--program "Program(...)"`` runs that one.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import fuzz_nodes
import jax
from fuzz_check import Outcome, check, check_seed, library, shrink
from fuzz_nodes import Program


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report(title: str, program: Program, outcome: Outcome, api: Any, seconds: float) -> None:
    """Show a failure, made smaller first."""
    say(f"--- {title}: {outcome.kind}")
    if seconds:
        program, outcome = shrink(program, api, outcome, seconds=seconds)
    say(f"{outcome.detail.rstrip()}\n  --program '{program!r}'")


def fuzz(seeds: range, api: Any, *, shard: bool = False, seconds: float = 30.0) -> collections.Counter[str]:
    """Check all *seeds*; spend *seconds* on making each failure smaller. Return how many went how."""
    counts: collections.Counter[str] = collections.Counter()
    for done, seed in enumerate(seeds, 1):
        program, outcome = check_seed(seed, api, shard=shard)
        counts[outcome.kind] += 1
        counts["metrics"] += outcome.metrics
        counts["inexact"] += not outcome.exact
        if outcome.kind in ("wrong", "crash"):
            report(f"seed {seed}", program, outcome, api, seconds)
        if done % 50 == 0:
            jax.clear_caches()  # thousands of compiled programs would fill the memory
    return counts


def summary(counts: collections.Counter[str]) -> str:
    """Return the figures in one line."""
    programs = sum(counts[kind] for kind in ("right", "wrong", "crash"))
    return (
        f"{programs} programs, {counts['wrong']} wrong, {counts['crash']} crashes, {counts['illegal']} not legal JAX, "
        f"{counts['ambiguous']} ambiguous, {counts['metrics']} metrics compared, "
        f"{counts['inexact']} with outputs that differ in rounding"
    )


def main() -> int:
    """Run the command line; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="0:200", help="first:last+1")
    parser.add_argument("--shard", action="store_true", help="programs with a shard_map")
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds to make each failure smaller; 0: do not")
    parser.add_argument("--program", help="check this program instead")
    options = parser.parse_args()
    api = library()
    if options.program:
        program = eval(options.program, vars(fuzz_nodes))
        outcome = check(program, api)
        report("the program", program, outcome, api, options.shrink * (outcome.kind in ("wrong", "crash")))
        return outcome.kind in ("wrong", "crash")
    started = time.monotonic()
    first, _, last = options.seeds.partition(":")
    counts = fuzz(range(int(first), int(last or int(first) + 1)), api, shard=options.shard, seconds=options.shrink)
    say(f"{summary(counts)}; {time.monotonic() - started:.0f} s")
    return bool(counts["wrong"] or counts["crash"])


if __name__ == "__main__":
    sys.exit(main())
