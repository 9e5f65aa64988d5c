"""A deep network as a scan over rematerialized layers: one value per layer, of both passes.

    pip install "trackway[jax]" optax scikit-learn
    python examples/recipes/layers_scan_remat.py

What the backward pass computes again is not logged again.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

LAYERS, WIDTH, STEPS = 6, 32, 20
OPTIMIZER = optax.adam(3e-3)
Params = dict[str, jax.Array]


def init(key: jax.Array) -> Params:
    """Return the weights; those of the layers are stacked."""
    keys = jax.random.split(key, 3)
    return {
        "first": jax.random.normal(keys[0], (64, WIDTH)) / 8,
        "layers": jax.random.normal(keys[1], (LAYERS, WIDTH, WIDTH)) / WIDTH**0.5,
        "last": jax.random.normal(keys[2], (WIDTH, 10)) / WIDTH**0.5,
    }


@jax.checkpoint
def layer(h: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    """Apply one residual layer to activations `[N, WIDTH]`."""
    h = trackway.watch_grad(h, "layers/gradient", reduce="stack")  # the norm of the gradient that arrives here
    h = h + jnp.tanh(h @ weight)
    trackway.log({"layers/rms": jnp.sqrt(jnp.mean(h**2))}, reduce="stack")  # "stack": a vector, an entry per layer
    trackway.log({"layers/largest": jnp.abs(h).max()}, reduce="max")  # "max": one number, the largest of all layers
    return h, None


def loss_fn(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy."""
    h, _ = jax.lax.scan(layer, images @ params["first"], params["layers"])
    loss = optax.softmax_cross_entropy_with_integer_labels(h @ params["last"], labels).mean()
    trackway.log({"loss": loss})
    return loss


@trackway.jit(donate_argnums=(0, 1))
def train_step(params: Params, state: Any, images: jax.Array, labels: jax.Array) -> tuple[Params, Any]:
    """Take one step."""
    grads = jax.grad(loss_fn)(params, images, labels)
    updates, state = OPTIMIZER.update(grads, state, params)
    return optax.apply_updates(params, updates), state


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    params = init(jax.random.key(0))
    state = OPTIMIZER.init(params)
    with trackway.current_tracker(ConsoleTracker()):
        for _ in range(STEPS):
            params, state = train_step(params, state, images / 16, labels)
