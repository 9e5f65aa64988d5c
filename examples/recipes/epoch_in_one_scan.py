"""A whole epoch in one compiled scan: the tracker still gets a row for every step.

    pip install "trackway[jax]" optax scikit-learn
    python examples/recipes/epoch_in_one_scan.py

A `step` that varies in the loop makes a row of each iteration. A `step` that does not, or none, makes one row of the
whole loop, to which the iterations are reduced.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

EPOCHS, BATCHES, SIZE = 3, 7, 256
OPTIMIZER = optax.adam(1e-2)


def loss_fn(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of a linear classifier."""
    logits = images @ params["weight"] + params["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@trackway.jit(donate_argnums=0)
def epoch(carry: Any, images: jax.Array, labels: jax.Array, key: jax.Array) -> Any:
    """Shuffle, and take `BATCHES` steps."""
    order = jax.random.permutation(key, len(labels))[: BATCHES * SIZE].reshape(BATCHES, SIZE)

    def train_step(carry: Any, chosen: jax.Array) -> tuple[Any, None]:
        params, state, step = carry
        loss, grads = jax.value_and_grad(loss_fn)(params, images[chosen], labels[chosen])
        trackway.log({"loss": loss, "gradient": optax.tree.norm(grads)}, step=step)
        updates, state = OPTIMIZER.update(grads, state, params)
        return (optax.apply_updates(params, updates), state, step + 1), None

    carry, _ = jax.lax.scan(train_step, carry, order)
    return carry


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16), jnp.asarray(labels)
    params = {"weight": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
    carry = (params, OPTIMIZER.init(params), 0)
    with trackway.current_tracker(ConsoleTracker()):
        for key in jax.random.split(jax.random.key(0), EPOCHS):
            carry = epoch(carry, images, labels, key)
            trackway.log({"epoch/loss": loss_fn(carry[0], images, labels)}, step=int(carry[2]) - 1)
