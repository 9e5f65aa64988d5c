"""Equinox: metrics logged inside of modules, in a step that `eqx.filter_jit` compiles.

    pip install "trackway[jax]" equinox optax scikit-learn
    python examples/recipes/equinox_step.py

`trackway.jit(jit=eqx.filter_jit)` passes its other options on, here which buffers are donated.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

STEPS = 20
OPTIMIZER = optax.adam(1e-2)


class Classifier(eqx.Module):
    """A multilayer perceptron that logs its hidden activations."""

    hidden: eqx.nn.Linear
    output: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        """Draw the weights."""
        keys = jax.random.split(key)
        self.hidden = eqx.nn.Linear(64, 32, key=keys[0])
        self.output = eqx.nn.Linear(32, 10, key=keys[1])

    def __call__(self, image: jax.Array) -> jax.Array:
        """Return the logits `[10]` of one image `[64]`."""
        h = jax.nn.relu(self.hidden(image))
        trackway.log({"hidden/active": jnp.mean(h > 0)})  # of one image; the row has the mean over the batch
        return self.output(h)


def loss_fn(model: Classifier, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy."""
    logits = jax.vmap(model)(images)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    trackway.log({"loss": loss, "accuracy": jnp.mean(logits.argmax(-1) == labels)})
    return loss


def train_step(data: tuple[jax.Array, jax.Array], model: Classifier, state: Any) -> tuple[Classifier, Any]:
    """Take one step."""
    grads = eqx.filter_grad(loss_fn)(model, *data)
    trackway.log({"gradient": optax.tree.norm(grads)})
    updates, state = OPTIMIZER.update(grads, state, model)
    return eqx.apply_updates(model, updates), state


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    data = jnp.asarray(images / 16), jnp.asarray(labels)
    model = Classifier(jax.random.key(0))
    state = OPTIMIZER.init(eqx.filter(model, eqx.is_inexact_array))
    compiled = trackway.jit(train_step, jit=eqx.filter_jit, donate="all-except-first")
    with trackway.current_tracker(ConsoleTracker()):
        for _ in range(STEPS):
            model, state = compiled(data, model, state)
