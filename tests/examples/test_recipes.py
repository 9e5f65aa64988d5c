"""The recipes run as they stand, and print what the pages of the library promise for such programs."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from trackway.errors import TrackwayWarning

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.py"))
EXAMPLES = 1797


@pytest.fixture
def run(capsys):
    """Return a function that runs a recipe; it returns the rows that were printed and the recipe's names."""

    def run_recipe(name):
        with warnings.catch_warnings():
            warnings.simplefilter("error", TrackwayWarning)
            names = runpy.run_path(str(RECIPES / f"{name}.py"), run_name="__main__")
        printed = capsys.readouterr()
        assert printed.err == ""
        return _rows(printed.out), SimpleNamespace(**names)

    return run_recipe


def run_alone(name):
    """Run a recipe that has to start JAX itself; return the rows that were printed."""
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    command = [sys.executable, str(RECIPES / f"{name}.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return _rows(done.stdout)


def _rows(printed):
    return [_row(line) for line in printed.splitlines()]


def _row(line):
    """Return the values of a line that the console tracker printed; what is described stays text."""
    pairs = re.findall(r"(\S+?)=(hist\([^)]*\)|\S+)", line)
    return {name: value if value.startswith("hist") else json.loads(value) for name, value in pairs}


def column(rows, name):
    """Return the values of *name* in the rows, which all have it."""
    return np.array([row[name] for row in rows])


def require_steps(rows, names, steps):
    """Require that the rows have these names, and are those of these steps in order."""
    assert all(row.keys() == {"step", *names} for row in rows)
    assert [row["step"] for row in rows] == list(range(steps))


def require_learning(losses, below):
    """Require a classifier that begins at about chance and ends below a loss."""
    assert losses[0] > 2
    assert losses[-1] < below


def test_every_recipe_is_tested():
    """There is a test for each recipe."""
    assert {f"test_{name}" for name in NAMES} <= globals().keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_short_and_says_how_to_run_it(name):
    """A recipe is under seventy lines, and its docstring has the commands that install what it needs and run it."""
    text = (RECIPES / f"{name}.py").read_text()
    assert len(text.splitlines()) < 70
    docstring = text.split('"""')[1]
    assert f"    python examples/recipes/{name}.py\n" in docstring
    installed = re.search(r'pip install "trackway\[jax\]" (.+)', docstring)[1].split()
    imported = set(re.findall(r"^(?:import|from) (equinox|flax|optax|orbax|sklearn)", text, re.MULTILINE))
    modules = {"scikit-learn": "sklearn", "orbax-checkpoint": "orbax"}
    assert imported == {modules.get(package, package) for package in installed}


def test_gradient_accumulation(run):
    """The loss of a step is the mean over its examples, also where micro-batches are not full or empty."""
    rows, recipe = run("gradient_accumulation")
    require_steps(rows, ["loss", "loss/worst", "examples"], recipe.STEPS)
    assert column(rows, "examples").tolist() == [256] * 7 + [EXAMPLES - 7 * 256]
    assert np.all(column(rows, "loss/worst") >= column(rows, "loss"))
    assert rows[0]["loss"] == pytest.approx(np.log(10), rel=1e-5)
    assert rows[6]["loss"] < rows[0]["loss"]


def test_layers_scan_remat(run):
    """Each layer has its entry in both passes, in the order of the layers, and the largest is the largest of all."""
    rows, recipe = run("layers_scan_remat")
    require_steps(rows, ["loss", "layers/rms", "layers/gradient", "layers/largest"], recipe.STEPS)
    assert column(rows, "layers/rms").shape == (recipe.STEPS, recipe.LAYERS)
    assert column(rows, "layers/gradient").shape == (recipe.STEPS, recipe.LAYERS)
    assert np.all(column(rows, "layers/largest") > column(rows, "layers/rms").max(axis=1))
    params = recipe.init(jax.random.key(0))
    h, expected = (recipe.images / 16) @ np.asarray(params["first"]), []
    for weight in np.asarray(params["layers"]):
        h = h + np.tanh(h @ weight)
        expected.append(np.sqrt(np.mean(h**2)))
    np.testing.assert_allclose(rows[0]["layers/rms"], expected, rtol=1e-3)
    require_learning(column(rows, "loss"), 1)


def test_epoch_in_one_scan(run):
    """There is a row for every step of every epoch, and one after each epoch at the step of its last."""
    rows, recipe = run("epoch_in_one_scan")
    steps = recipe.EPOCHS * recipe.BATCHES
    training = [row for row in rows if "loss" in row]
    require_steps(training, ["loss", "gradient"], steps)
    assert [row["step"] for row in rows if "epoch/loss" in row] == list(
        range(recipe.BATCHES - 1, steps, recipe.BATCHES)
    )
    require_learning(column(training, "loss"), 1.4)


def test_shard_map():
    """The loss is the mean of those of the eight devices, and what they recognise is counted together."""
    rows = run_alone("shard_map")
    require_steps(rows, ["loss", "correct", "loss/device"], 20)
    assert column(rows, "loss/device").shape == (20, 8)
    np.testing.assert_allclose(column(rows, "loss"), column(rows, "loss/device").mean(axis=1), rtol=1e-4)
    assert 0.85 * EXAMPLES < rows[-1]["correct"] <= EXAMPLES
    require_learning(column(rows, "loss"), 1.2)


@pytest.mark.frameworks
def test_equinox_step(run):
    """What modules log under `vmap` is averaged over the batch."""
    rows, recipe = run("equinox_step")
    require_steps(rows, ["hidden/active", "loss", "accuracy", "gradient"], recipe.STEPS)
    first = recipe.Classifier(jax.random.key(0))
    hidden = np.asarray(recipe.data[0]) @ np.asarray(first.hidden.weight).T + np.asarray(first.hidden.bias)
    assert rows[0]["hidden/active"] == pytest.approx(np.mean(hidden > 0), abs=1e-3)
    assert rows[-1]["accuracy"] > 0.85
    require_learning(column(rows, "loss"), 0.8)


@pytest.mark.frameworks
def test_flax_linen(run):
    """Scanned layers of linen have an entry each, and initialisation logs nothing."""
    rows, recipe = run("flax_linen")
    require_steps(rows, ["layers/rms", "loss"], recipe.STEPS)
    assert column(rows, "layers/rms").shape == (recipe.STEPS, recipe.LAYERS)
    require_learning(column(rows, "loss"), 0.5)


@pytest.mark.frameworks
def test_flax_nnx(run):
    """A step that changes a module in place logs under the step it is given, and the module learns."""
    rows, recipe = run("flax_nnx")
    require_steps(rows, ["hidden/zeros", "norm/mean", "loss"], recipe.STEPS)
    assert rows[-1]["norm/mean"] == pytest.approx(float(np.abs(recipe.model.norm.mean[...]).mean()), rel=1e-4)
    require_learning(column(rows, "loss"), 0.8)


@pytest.mark.frameworks
def test_optax_transform(run):
    """A transformation logs what passes its place in the chain, before and after the clipping."""
    rows, recipe = run("optax_transform")
    require_steps(rows, ["loss", "norm/gradient", "norm/clipped", "norm/update"], recipe.STEPS)
    raw, clipped = column(rows, "norm/gradient"), column(rows, "norm/clipped")
    assert raw.max() > 0.3
    np.testing.assert_allclose(clipped, np.minimum(raw, 0.3), rtol=1e-4)
    require_learning(column(rows, "loss"), 1)


def test_backward_statistics(run):
    """Gradients are described in every step of training, and not where nothing is differentiated."""
    rows, recipe = run("backward_statistics")
    names = ["loss", "backward/hidden", "backward/silent", "backward/logits"]
    require_steps(rows[:-1], names, recipe.STEPS)
    assert rows[-1].keys() == {"step", "loss"}
    assert all(row["backward/logits"].startswith(f"hist(n={EXAMPLES * 10} ") for row in rows[:-1])
    assert np.all((column(rows[:-1], "backward/silent") >= 0) & (column(rows[:-1], "backward/silent") < 1))
    require_learning(column(rows, "loss"), 1.2)


@pytest.mark.frameworks
def test_orbax_resume(run):
    """What was logged after the checkpoint is logged anew, and the history has each step once, on one curve."""
    rows, recipe = run("orbax_resume")
    require_steps(rows, ["loss", "attempt"], recipe.STEPS)
    saved = recipe.STOPPED_AT + 1 - (recipe.STOPPED_AT + 1) % recipe.SAVE_EVERY
    assert column(rows, "attempt").tolist() == [1] * saved + [2] * (recipe.STEPS - saved)
    losses = column(rows, "loss")
    assert np.all(np.diff(losses) < 0)
    assert np.all(np.abs(np.diff(losses, 2)) < 0.01), "the weights went on from where they were saved"
    require_learning(losses, 1.3)
