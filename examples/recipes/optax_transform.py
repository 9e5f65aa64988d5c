"""Optax: a gradient transformation that logs what passes through it.

    pip install "trackway[jax]" optax scikit-learn
    python examples/recipes/optax_transform.py

It goes anywhere in a chain, and into wrappers such as `optax.MultiSteps` and `optax.masked`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

STEPS = 20


def log_norm(name: str) -> optax.GradientTransformation:
    """Return a transformation that changes nothing, and logs the norm of the updates at its place."""

    def update(updates: Any, params: Any = None) -> Any:  # noqa: ARG001 - what optax calls it with
        trackway.log({f"norm/{name}": optax.tree.norm(updates)})
        return updates

    return optax.stateless(update)


OPTIMIZER = optax.chain(
    log_norm("gradient"),
    optax.clip_by_global_norm(0.3),
    log_norm("clipped"),
    optax.adam(optax.cosine_decay_schedule(3e-2, STEPS)),
    log_norm("update"),
)


@trackway.jit(donate_argnums=(0, 1))
def train_step(params: dict[str, jax.Array], state: Any, images: jax.Array, labels: jax.Array) -> Any:
    """Take one step."""

    def loss_fn(params: dict[str, jax.Array]) -> jax.Array:
        logits = images @ params["weight"] + params["bias"]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        trackway.log({"loss": loss})
        return loss

    updates, state = OPTIMIZER.update(jax.grad(loss_fn)(params), state, params)
    return optax.apply_updates(params, updates), state


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16), jnp.asarray(labels)
    params = {"weight": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
    state = OPTIMIZER.init(params)
    with trackway.current_tracker(ConsoleTracker()):
        for _ in range(STEPS):
            params, state = train_step(params, state, images, labels)
