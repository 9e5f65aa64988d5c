"""Flax linen: one value per layer out of `nn.scan` of `nn.remat`.

    pip install "trackway[jax]" flax optax scikit-learn
    python examples/recipes/flax_linen.py

`init` runs the module as well, so that it is muted.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

LAYERS, WIDTH, STEPS = 4, 32, 20


class Layer(nn.Module):
    """A residual layer."""

    @nn.compact
    def __call__(self, h: jax.Array, _: None) -> tuple[jax.Array, None]:
        """Return `[N, WIDTH]` for `[N, WIDTH]`, and log."""
        h = h + nn.Dense(WIDTH)(nn.relu(nn.LayerNorm()(h)))
        trackway.log({"layers/rms": jnp.sqrt(jnp.mean(h**2))}, reduce="stack")
        return h, None


class Classifier(nn.Module):
    """Scanned, rematerialized layers."""

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the logits `[N, 10]` of images `[N, 64]`."""
        scanned = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS)
        h, _ = scanned()(nn.Dense(WIDTH)(images), None)
        return nn.Dense(10)(h)


MODEL, OPTIMIZER = Classifier(), optax.adam(1e-2)


@trackway.jit(donate_argnums=(0, 1))
def train_step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, Any]:
    """Take one step."""
    losses = optax.softmax_cross_entropy_with_integer_labels
    loss, grads = jax.value_and_grad(lambda params: losses(MODEL.apply(params, images), labels).mean())(params)
    trackway.log({"loss": loss})
    updates, state = OPTIMIZER.update(grads, state, params)
    return optax.apply_updates(params, updates), state


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16), jnp.asarray(labels)
    with trackway.mute():
        params = MODEL.init(jax.random.key(0), images[:1])
    state = OPTIMIZER.init(params)
    with trackway.current_tracker(ConsoleTracker()):
        for _ in range(STEPS):
            params, state = train_step(params, state, images, labels)
