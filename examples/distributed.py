"""Data-parallel training in several processes, tracked as one run.

    python examples/distributed.py --processes 2

starts a second process on this machine and trains in both. Under a launcher, each of the processes runs the program:

    #SBATCH --nodes=2 --ntasks-per-node=1
    export TRACKWAY_DIR=/shared/runs        # a folder that all nodes see
    srun python examples/distributed.py

`jax.distributed` finds coordinator, size and rank there by itself, and trackway takes the rank from the same variables.

Every process calls the same verbs. What is computed for the whole batch, such as the loss, is the same everywhere, and
the other trackers have it once, from rank 0. What differs, such as the throughput, is in the file of each process.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

import trackway
from trackway.backends.tensorboard import TensorboardConfig

Params = dict[str, jax.Array]
THROUGHPUT = "throughput/images_per_second"


def start_others(processes: int) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start the processes of rank 1 and above on this machine; return the address at which all meet, and them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    again = [sys.executable, __file__, *sys.argv[1:], "--coordinator", address]
    return address, [subprocess.Popen([*again, "--rank", str(rank)]) for rank in range(1, processes)]  # noqa: S603


def join_job(options: argparse.Namespace) -> list[subprocess.Popen[bytes]]:
    """Make JAX know of all processes; return those that were started here."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if "SLURM_STEP_NUM_TASKS" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ:
        jax.distributed.initialize()
        return []
    address, others = (options.coordinator, []) if options.coordinator else start_others(options.processes)
    if options.processes > 1:
        jax.distributed.initialize(address, options.processes, options.rank, coordinator_bind_address=address)
    return others


def init_params(key: jax.Array, hidden: int = 128) -> Params:
    """Return random weights (He's normal distribution) and zero biases."""
    first, second = jax.random.split(key)
    return {
        "hidden": jax.random.normal(first, (64, hidden)) * np.sqrt(2 / 64),
        "hidden_bias": jnp.zeros(hidden),
        "output": jax.random.normal(second, (hidden, 10)) * np.sqrt(2 / hidden),
        "output_bias": jnp.zeros(10),
    }


def loss_and_accuracy(params: Params, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the mean cross-entropy and the share of images that are recognised, of the batch of all processes."""
    hidden = jax.nn.relu(images @ params["hidden"] + params["hidden_bias"])
    logits = hidden @ params["output"] + params["output_bias"]
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, jnp.mean(logits.argmax(-1) == labels)


def make_train_step(optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """Return the compiled step, which logs the loss of the whole batch from the inside."""

    @trackway.jit(donate_argnums=(0, 1))
    def train_step(params: Params, state: Any, images: jax.Array, labels: jax.Array, step: jax.Array) -> Any:
        compute = jax.value_and_grad(loss_and_accuracy, has_aux=True)
        (loss, accuracy), gradients = compute(params, images, labels)
        trackway.log({"train/loss": loss, "train/accuracy": accuracy}, step=step)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return train_step


def batches(size: int, steps: int, spread: NamedSharding) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yield global batches of *size* images, of which each process loads its own part."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
    rng = np.random.default_rng(0)  # the same in all processes
    for _ in range(steps):
        mine = np.split(rng.choice(len(labels), size, replace=False), jax.process_count())[jax.process_index()]
        yield tuple(jax.make_array_from_process_local_data(spread, data[mine]) for data in (images, labels))


def train(options: argparse.Namespace) -> None:
    """Train; every process logs its throughput, and the loss, which is the same in all of them."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    everywhere, spread = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
    optimizer = optax.adam(options.learning_rate)
    params = jax.jit(init_params, out_shardings=everywhere)(jax.random.key(0))
    state = jax.jit(optimizer.init, out_shardings=everywhere)(params)
    train_step = make_train_step(optimizer)
    size = options.batch_size // jax.device_count() * jax.device_count()

    since = time.perf_counter()
    for step, batch in enumerate(batches(size, options.steps, spread), start=1):
        params, state = train_step(params, state, *batch, step)
        if step % options.report_every == 0:
            jax.block_until_ready(params)
            now = time.perf_counter()
            images = options.report_every * size // jax.process_count()
            trackway.log({THROUGHPUT: images / (now - since)}, step=step)
            since = now


def report(run: trackway.Run) -> None:
    """Have rank 0 say what all processes have logged."""
    run.flush(commit_open=True)
    row = run.history(1, metrics=["train/*", THROUGHPUT], output="numpy")
    total = trackway.reduce_across_processes({"images_per_second": row[THROUGHPUT][-1]}, how="sum")  # waits for all
    run.summary.update(total)
    if jax.process_index() != 0:
        return
    rows = run.history(None, metrics=THROUGHPUT, ranks="all", output="numpy")
    throughput: dict[int, list[float]] = defaultdict(list)
    for rank, value in zip(rows["_rank"], rows[THROUGHPUT], strict=True):
        throughput[int(rank)].append(value)
    for rank, values in sorted(throughput.items()):
        print(f"rank {rank}: {np.median(values):8.0f} images/s")
    print(f"loss {row['train/loss'][-1]:.4f}, accuracy {row['train/accuracy'][-1]:.2%}")
    print(f"run {run.run_id} of {jax.process_count()} processes is in {os.path.relpath(run.store.directory)}")


def main() -> int:
    """Train; return the highest exit code of the processes that were started here."""
    parser = argparse.ArgumentParser(description="Data-parallel training in several processes, tracked as one run.")
    parser.add_argument("--processes", type=int, default=2, help="processes on this machine, without a launcher")
    parser.add_argument("--rank", type=int, default=0, help="rank of this one; the others are started by rank 0")
    parser.add_argument("--coordinator", help="host:port of rank 0, for processes that were started by hand")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256, help="images of one step, in all processes together")
    parser.add_argument("--report-every", type=int, default=20, help="steps between two reports of the throughput")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    options = parser.parse_args()
    others = join_job(options)
    logs = Path(os.environ.get("TRACKWAY_DIR", "runs")) / "tensorboard"
    try:
        with trackway.start(TensorboardConfig(str(logs)), config=vars(options)) as run:  # one id, made up by rank 0
            train(options)
            report(run)
    except BaseException:
        for other in others:
            other.terminate()  # they would wait for this one
        raise
    jax.distributed.shutdown()  # each waits there for the others
    return max((other.wait() for other in others), default=0)


if __name__ == "__main__":
    sys.exit(main())
