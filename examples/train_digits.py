"""Train a small network on handwritten digits and track it with trackway.

    python examples/train_digits.py
    python examples/train_digits.py --trainer.epochs 5 --trainer.tracking.trackers '[]'
    python examples/train_digits.py --trainer.tracking.trackers '[{type: console}, {type: json_logger}]'
    python examples/train_digits.py --config_path my.yaml

The data are the 1,797 images of 8 x 8 pixels that come with scikit-learn. Which trackers get the rows of the run, and
everything else, is in `digits.yaml` beside this file.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import draccus
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split

import trackway
from trackway import Histogram, Image, Run, Table, TrackingConfig
from trackway.backends.tensorboard import TensorboardTracker
from trackway.events import TrainingEvents
from trackway.store import read_rows
from trackway.tracker import leaves

DEFAULT_CONFIG = Path(__file__).with_name("digits.yaml")
Params = dict[str, dict[str, jax.Array]]


@dataclass(frozen=True)
class ModelConfig:
    """The network: two convolutions and a hidden layer."""

    channels: int = 16
    hidden: int = 64


@dataclass(frozen=True)
class TrainerConfig:
    """How it is trained, and where the numbers go."""

    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    epochs: int = 15
    batch_size: int = 64
    learning_rate: float = 4e-3
    histogram_every: int = 22
    seed: int = 0


@dataclass(frozen=True)
class Config:
    """Everything that can be chosen in the YAML file and on the command line."""

    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


class Split(NamedTuple):
    """A part of the data: images `[N, 8, 8]` in [0, 1], labels `[N]`."""

    images: np.ndarray
    labels: np.ndarray


class Best(NamedTuple):
    """The parameters that did best on the validation images."""

    accuracy: float
    step: int
    params: Params


def load_data(seed: int) -> tuple[Split, Split]:
    """Return four fifths of the images for training and one fifth for validation."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    parts = train_test_split(images, digits.target, test_size=0.2, stratify=digits.target, random_state=seed)
    return Split(parts[0], parts[2]), Split(parts[1], parts[3])


def batches(data: Split, size: int, epochs: int, seed: int) -> Iterator[Split]:
    """Yield shuffled batches of *size*; what is left at the end of an epoch is not used in it."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(data.labels))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield Split(data.images[chosen], data.labels[chosen])


def init_params(config: ModelConfig, seed: int) -> Params:
    """Return random weights (He's normal distribution) and zero biases."""
    rng = np.random.default_rng(seed)
    first, second = config.channels, 2 * config.channels
    shapes = {
        "conv1": (3, 3, 1, first),
        "conv2": (3, 3, first, second),
        "hidden": (4 * 4 * second, config.hidden),
        "output": (config.hidden, 10),
    }
    params = {}
    for name, shape in shapes.items():
        weight = rng.normal(0, np.sqrt(2 / np.prod(shape[:-1])), shape)
        params[name] = {"weight": jnp.asarray(weight, jnp.float32), "bias": jnp.zeros(shape[-1])}
    return params


def forward(params: Params, images: jax.Array) -> jax.Array:
    """Return the logits `[N, 10]` of images `[N, 8, 8]`."""
    x = images[..., None]
    for name, stride in (("conv1", 1), ("conv2", 2)):
        x = jax.lax.conv_general_dilated(
            x, params[name]["weight"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params[name]["bias"])
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["hidden"]["weight"] + params["hidden"]["bias"])
    return x @ params["output"]["weight"] + params["output"]["bias"]


def loss_and_accuracy(params: Params, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the mean cross-entropy and the share of images that are recognised."""
    logits = forward(params, images)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, jnp.mean(logits.argmax(-1) == labels)


def make_train_step(optimizer: optax.GradientTransformation, histogram_every: int) -> Callable[..., Any]:
    """Return the compiled step; it logs from the inside, at a step number that is traced like the data.

    It takes over the buffers of the parameters and of the optimizer's state that it is given.
    """

    def log_gradients(gradients: Params, step: jax.Array) -> None:
        histograms = {name: Histogram.from_array(gradients[name]["weight"]) for name in ("conv1", "output")}
        trackway.log({"gradients": histograms}, step=step)

    @trackway.jit(donate_argnums=(0, 1))
    def train_step(params: Params, state: Any, images: jax.Array, labels: jax.Array, step: jax.Array) -> Any:
        compute = jax.value_and_grad(loss_and_accuracy, has_aux=True)
        (loss, accuracy), gradients = compute(params, images, labels)
        norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradients)))
        trackway.log({"train/loss": loss, "train/accuracy": accuracy, "train/gradient_norm": norm}, step=step)
        jax.lax.cond(step % histogram_every == 0, log_gradients, lambda *_: None, gradients, step)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return train_step


def copied(params: Params) -> Params:
    """Return the parameters in buffers of their own, to be kept when the next step takes over theirs."""
    return jax.tree.map(jnp.copy, params)


def train(config: Config, training: Split, validation: Split) -> tuple[Best, int]:
    """Train, validating after each epoch; return the best parameters and the number of steps.

    Raises:
        FloatingPointError: if the loss is no finite number any more.
    """
    trainer = config.trainer
    steps_per_epoch = len(training.labels) // trainer.batch_size
    schedule = optax.cosine_decay_schedule(trainer.learning_rate, trainer.epochs * steps_per_epoch)
    optimizer = optax.adam(schedule)
    train_step = make_train_step(optimizer, trainer.histogram_every)
    validate = jax.jit(loss_and_accuracy)

    params = init_params(config.model, trainer.seed)
    state = optimizer.init(params)
    best, step = Best(0.0, 0, copied(params)), 0
    for step, batch in enumerate(batches(training, trainer.batch_size, trainer.epochs, trainer.seed), start=1):
        params, state = train_step(params, state, *batch, step)
        if step % steps_per_epoch == 0:
            with trackway.span("validate"):
                loss, accuracy = map(float, validate(params, *validation))
            trackway.log({"validation/loss": loss, "validation/accuracy": accuracy}, step=step)
            if not math.isfinite(loss):
                raise FloatingPointError(f"the validation loss is {loss} after step {step}; learn more slowly")
            if accuracy > best.accuracy:
                best = Best(accuracy, step, copied(params))
    return best, step


def log_predictions(params: Params, data: Split, step: int, amount: int = 8) -> None:
    """Log the confusion table, and the images whose label seemed least likely: the mistakes come first."""
    probabilities = np.asarray(jax.nn.softmax(jax.jit(forward)(params, data.images)))
    predicted = probabilities.argmax(-1)
    counts = confusion_matrix(data.labels, predicted).tolist()
    table = Table(["is", *map(str, range(10))], [[digit, *row] for digit, row in enumerate(counts)])

    samples = {}
    likelihood = probabilities[np.arange(len(predicted)), data.labels]
    for number, index in enumerate(likelihood.argsort()[:amount]):
        enlarged = np.kron(data.images[index], np.ones((8, 8)))
        samples[f"{number}"] = Image(enlarged, caption=f"predicted {predicted[index]}, is {data.labels[index]}")
    trackway.log({"validation/confusion": table, "samples": samples}, step=step, commit=True)  # nothing follows


def log_params(best: Best, events: TrainingEvents) -> None:
    """Store the parameters as a file of the run."""
    arrays = {f"{layer}.{name}": array for layer, group in best.params.items() for name, array in group.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "parameters.npz"
        np.savez(path, **arrays)
        trackway.log_artifact(path, type="model")
    events.checkpoint(best.step, path.name, accuracy=best.accuracy)


def print_last_rows(directory: Path, amount: int = 5) -> None:
    """Print the last epochs as the run directory has them."""
    steps: dict[int, dict[str, Any]] = defaultdict(dict)
    rows = read_rows(directory)
    for row in rows:
        steps[row["_step"]].update(row)
    names = ("train/loss", "train/accuracy", "validation/loss", "validation/accuracy")
    print("\n  step  " + "  ".join(f"{name:>19}" for name in names))
    for step in [step for step in sorted(steps) if "validation/loss" in steps[step]][-amount:]:
        print(f"{step:6d}  " + "  ".join(f"{steps[step][name]:19.4f}" for name in names))
    print(f"\n{len(rows)} rows, media and artifacts are in {os.path.relpath(directory)}")


def print_where(run: Run) -> None:
    """Say where the run lies and how to look at it."""
    if run.store is not None:
        print_last_rows(run.store.directory)
    for backend in leaves(run.backends):
        if isinstance(backend, TensorboardTracker):
            command = os.path.relpath(Path(sys.executable).with_name("tensorboard"))
            logdir = os.path.relpath(Path(backend.writer.logdir).parent)
            print(f"to look at it, run {command} --logdir {logdir} and open http://localhost:6006")


def main(config: Config) -> None:
    """Train, and log everything worth keeping."""
    training, validation = load_data(config.trainer.seed)
    tracking = config.trainer.tracking
    run_id = tracking.run_id or os.environ.get("TRACKWAY_RUN_ID") or time.strftime("digits-%Y%m%d-%H%M%S")
    started = time.monotonic()
    epochs = config.trainer.epochs
    with tracking.start(config=config, run_id=run_id) as run, TrainingEvents(run, epochs=epochs) as events:
        best, step = train(config, training, validation)
        log_predictions(best.params, validation, step)
        log_params(best, events)
        seconds = time.monotonic() - started
        events.train_end(steps=step, accuracy=best.accuracy)
        run.summary.update(best_accuracy=best.accuracy, best_step=best.step, seconds=seconds)
    print_where(run)
    print(f"best validation accuracy {best.accuracy:.2%} at step {best.step}, after {seconds:.1f} s")


if __name__ == "__main__":
    chosen = any(argument.startswith("--config_path") for argument in sys.argv)
    main(draccus.parse(Config, config_path=None if chosen else DEFAULT_CONFIG))
