"""Data parallelism by shard_map: metrics of all devices in one row.

    pip install "trackway[jax]" scikit-learn
    python examples/recipes/shard_map.py

A mean is that over the devices, a sum theirs together, and a stack has an entry for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

import trackway
from trackway.backends.console import ConsoleTracker

STEPS, RATE = 20, 0.5
Params = dict[str, jax.Array]


def loss_fn(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of this device's examples, and log."""
    log_probabilities = jax.nn.log_softmax(images @ params["weight"] + params["bias"])
    loss = -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=1))
    correct = log_probabilities.argmax(-1) == labels
    trackway.log({"loss": loss})
    trackway.log({"correct": correct.sum()}, reduce="sum")
    trackway.log({"loss/device": loss}, reduce="stack")
    return loss


def make_train_step(mesh: jax.sharding.Mesh) -> Callable[..., Params]:
    """Return the compiled step: gradients of the devices' own examples, averaged over devices."""
    data, same = PartitionSpec("data"), PartitionSpec()

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(same, data, data), out_specs=same)
    def train_step(params: Params, images: jax.Array, labels: jax.Array) -> Params:
        own = jax.lax.pcast(params, "data", to="varying")  # so that the gradient is that of this device
        grads = jax.lax.pmean(jax.grad(loss_fn)(own, images, labels), "data")
        return jax.tree.map(lambda param, grad: param - RATE * grad, params, grads)

    return trackway.jit(train_step, donate_argnums=0)


def main() -> None:
    """Train a linear classifier on all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    images, labels = load_digits(return_X_y=True)
    amount = len(labels) // mesh.size * mesh.size
    data = images[:amount] / 16, labels[:amount]
    images, labels = jax.device_put(data, NamedSharding(mesh, PartitionSpec("data")))
    params = {"weight": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
    train_step = make_train_step(mesh)
    for _ in range(STEPS):
        params = train_step(params, images, labels)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # without an accelerator
    with trackway.current_tracker(ConsoleTracker()):
        main()
