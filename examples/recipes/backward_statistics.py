"""The backward pass: norms, histograms and statistics of your own of gradients with respect to activations.

    pip install "trackway[jax]" scikit-learn
    python examples/recipes/backward_statistics.py

`watch_grad` returns its argument. When a gradient flows back through it, a statistic of that gradient is logged.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

STEPS, RATE = 20, 0.5
Params = dict[str, jax.Array]


def init(key: jax.Array) -> Params:
    """Return random weights for two layers."""
    first, second = jax.random.split(key)
    return {"first": jax.random.normal(first, (64, 32)) / 8, "second": jax.random.normal(second, (32, 10)) / 32**0.5}


def silent(gradient: jax.Array) -> Any:
    """Return the share of hidden units that no example of the batch sends a gradient to."""
    return jnp.mean(jnp.all(gradient == 0, axis=0))


def loss_fn(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of a network with one hidden layer."""
    hidden = images @ params["first"]
    hidden = trackway.watch_grad(hidden, "backward/hidden")  # the Euclidean norm
    hidden = trackway.watch_grad(hidden, "backward/silent", stat=silent)
    logits = jax.nn.relu(hidden) @ params["second"]
    with trackway.scope("backward"):  # a prefix: "backward/logits"
        logits = trackway.watch_grad(logits, "logits", stat="histogram")
    log_probabilities = jax.nn.log_softmax(logits)
    loss = -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=1))
    trackway.log({"loss": loss})
    return loss


@trackway.jit(donate_argnums=0)
def train_step(params: Params, images: jax.Array, labels: jax.Array) -> Params:
    """Take one step of gradient descent."""
    grads = jax.grad(loss_fn)(params, images, labels)
    return jax.tree.map(lambda param, grad: param - RATE * grad, params, grads)


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    params = init(jax.random.key(0))
    with trackway.current_tracker(ConsoleTracker()):
        for _ in range(STEPS):
            params = train_step(params, images / 16, labels)
        loss_fn(params, images / 16, labels)  # logs the loss alone: nothing is differentiated
