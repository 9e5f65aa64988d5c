"""Random programs: what is captured equals what a Python loop writes down."""

from __future__ import annotations

import types

import fuzz
import fuzz_check
import fuzz_nodes as nodes
import jax
import pytest
from fuzz_generate import generate
from fuzz_oracle import samples
from fuzz_reduce import expected

BATCH = 10


@pytest.fixture
def api():
    """The verbs that programs call."""
    return fuzz_check.library()


def failures(seeds, api, *, shard=False):
    """Return what went wrong, by seed."""
    found = {}
    for seed in seeds:
        program, outcome = fuzz_check.check_seed(seed, api, shard=shard, outputs=seed % 4 == 0)
        if outcome.kind in ("wrong", "crash"):
            found[seed] = f"{outcome.detail}\n{program!r}"
    jax.clear_caches()
    return found


@pytest.mark.parametrize("first", range(0, 160, BATCH))
def test_programs(first, api):
    """Nested loops, branches, lanes and derivative rules log what a Python loop would."""
    assert failures(range(first, first + BATCH), api) == {}


@pytest.mark.parametrize("first", range(0, 40, BATCH))
def test_programs_over_devices(first, api):
    """So do programs with a part that is spread over devices."""
    assert failures(range(first, first + BATCH), api, shard=True) == {}


def test_seed_makes_one_program():
    """A seed names a program: two calls give the same, whose text makes it again."""
    program = generate(11)
    assert program == generate(11)
    assert program == eval(repr(program), vars(nodes))


def test_oracle_by_hand():
    """The definition itself, on a program whose samples are counted by hand."""
    taken = nodes.Cond("k", nodes.Log("stack", "k", "stack"), nodes.Log("weighted", "k", "mean", "k"))
    body = nodes.Seq((nodes.Log("last", "k", "last"), nodes.Log("n", "one", "sum"), taken))
    program = nodes.Program(nodes.Scan(body, 3, reverse=True), "grad", k=4)
    metrics, rows = expected(samples(program))
    assert rows == {}
    # k is 4 + 2, then 6 + 1, then 7 + 0: the loop runs backwards
    assert metrics["n"] == 3
    assert metrics["last"] == 7
    assert metrics["weighted"] == 7
    assert metrics["stack"].tolist() == [None, None, 6]


@pytest.mark.parametrize("fault", ["twice", "never", "weightless"])
def test_planted_fault_is_found(fault, api):
    """A capture layer that counts twice, loses a log or forgets weights is caught within a few seeds."""

    def log(metrics, *, weight=None, **options):
        for _ in range({"twice": 2, "never": 0}.get(fault, 1)):
            api.log(metrics, **options, weight=None if fault == "weightless" else weight)

    planted = types.SimpleNamespace(**{**vars(api), "log": log})
    kinds = [fuzz_check.check_seed(seed, planted, shard=False, outputs=False)[1].kind for seed in range(12)]
    assert {"wrong", "crash"} & set(kinds)


def test_failures_are_made_smaller(api):
    """A program that fails is shown as a smaller one that fails in the same way."""
    silent = types.SimpleNamespace(**{**vars(api), "log": lambda metrics, **options: None})
    log = nodes.Log("n", "one", "sum")
    program = nodes.Program(nodes.Scan(nodes.Seq((nodes.Op("sin"), nodes.Jit(log), nodes.Op("half"))), 3))
    outcome = fuzz_check.check(program, silent)
    assert outcome.kind == "wrong"
    assert fuzz_check.shrink(program, silent, outcome)[0] == nodes.Program(log)


def test_summary_counts():
    """The last line of the command says how many programs went how."""
    counts = fuzz.collections.Counter(right=3, wrong=1, illegal=2)
    assert fuzz.summary(counts).startswith("4 programs, 1 wrong, 0 crashes, 2 not legal JAX")
