"""Flax nnx: metrics out of functions that change modules in place.

    pip install "trackway[jax]" flax optax scikit-learn
    python examples/recipes/flax_nnx.py

`trackway.jit` takes `nnx.jit` for its compiler; the objects that the function is given are changed in place as always.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

STEPS = 20


class Classifier(nnx.Module):
    """A multilayer perceptron with batch normalisation and dropout."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        """Draw the weights."""
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.output = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the logits `[N, 10]` of images `[N, 64]`, and log."""
        h = self.dropout(nnx.relu(self.norm(self.hidden(images))))
        trackway.log({"hidden/zeros": jnp.mean(h == 0), "norm/mean": jnp.abs(self.norm.mean[...]).mean()})
        return self.output(h)


def loss_fn(model: Classifier, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy."""
    loss = optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()
    trackway.log({"loss": loss})
    return loss


@trackway.jit(jit=nnx.jit)
def train_step(model: Classifier, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Take one step: parameters, batch statistics, optimizer and random numbers change in place."""
    loss, grads = nnx.value_and_grad(loss_fn)(model, images, labels)
    optimizer.update(model, grads)
    return loss


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16), jnp.asarray(labels)
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    with trackway.current_tracker(ConsoleTracker()):
        for step in range(STEPS):
            with trackway.at_step(step):
                train_step(model, optimizer, images, labels)
