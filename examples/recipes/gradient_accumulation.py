"""Gradient accumulation: micro-batches in a scan arrive as one row per step.

    pip install "trackway[jax]" optax scikit-learn
    python examples/recipes/gradient_accumulation.py

The last batch is not full; `weight` makes the loss the mean over examples, not over micro-batches.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

STEPS, MICRO_BATCHES, SIZE = 8, 4, 64  # 8 x 4 x 64 places for 1,797 images
OPTIMIZER = optax.adam(1e-2)


def batches() -> tuple[np.ndarray, np.ndarray]:
    """Return images `[step, micro-batch, example, 64]` and labels; -1 is the label of an empty place."""
    images, labels = load_digits(return_X_y=True)
    empty = STEPS * MICRO_BATCHES * SIZE - len(labels)
    images = np.pad(images / 16, ((0, empty), (0, 0))).astype(np.float32)
    labels = np.pad(labels, (0, empty), constant_values=-1)
    return images.reshape(STEPS, MICRO_BATCHES, SIZE, 64), labels.reshape(STEPS, MICRO_BATCHES, SIZE)


def loss_fn(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the sum of the losses of a micro-batch, and log."""
    real = labels >= 0
    logits = images @ params["weight"] + params["bias"]
    losses = real * optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
    trackway.log({"loss": losses.sum() / jnp.maximum(real.sum(), 1)}, weight=real.sum())
    trackway.log({"loss/worst": losses.max()}, reduce="max")
    trackway.log({"examples": real.sum()}, reduce="sum")
    return losses.sum()


@trackway.jit(donate_argnums=(0, 1))
def train_step(params: dict[str, jax.Array], state: Any, images: jax.Array, labels: jax.Array) -> Any:
    """Add up the gradients of all micro-batches, then take one step of the optimizer."""

    def add(total: Any, micro: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, jax.grad(loss_fn)(params, *micro)), None

    grads, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (images, labels))
    grads = jax.tree.map(lambda grad: grad / (labels >= 0).sum(), grads)
    updates, state = OPTIMIZER.update(grads, state, params)
    return optax.apply_updates(params, updates), state


if __name__ == "__main__":
    params = {"weight": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
    state = OPTIMIZER.init(params)
    with trackway.current_tracker(ConsoleTracker()):
        for images, labels in zip(*batches(), strict=True):
            params, state = train_step(params, state, images, labels)
