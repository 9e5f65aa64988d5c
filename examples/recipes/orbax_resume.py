"""Orbax: a training that was stopped goes on from its checkpoint, and its run has every step once.

    pip install "trackway[jax]" orbax-checkpoint optax scikit-learn
    python examples/recipes/orbax_resume.py

`run.state_dict()` is saved with the weights, and `resume_state` takes it back: rows that were logged after the
checkpoint are superseded by those that follow.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from orbax.checkpoint import CheckpointManager, args
from sklearn.datasets import load_digits

import trackway
from trackway.store import read_history

STEPS, SAVE_EVERY, STOPPED_AT = 20, 5, 12
OPTIMIZER = optax.adam(1e-2)


@trackway.jit(donate_argnums=0)
def train_step(model: Any, images: jax.Array, labels: jax.Array, step: int) -> Any:
    """Take one step with a linear classifier."""
    weight, state = model
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    loss, grads = jax.value_and_grad(lambda weight: cross_entropy(images @ weight, labels).mean())(weight)
    trackway.log({"loss": loss}, step=step)
    updates, state = OPTIMIZER.update(grads, state, weight)
    return optax.apply_updates(weight, updates), state


def train(folder: Path, images: jax.Array, labels: jax.Array, stop_at: int | None = None) -> None:
    """Train from the latest checkpoint in *folder*, if there is one, and be stopped after a step."""
    model, saved = (jnp.zeros((64, 10)), OPTIMIZER.init(jnp.zeros((64, 10)))), None
    with CheckpointManager(folder / "checkpoints") as checkpoints:
        if (latest := checkpoints.latest_step()) is not None:
            items = {"model": args.StandardRestore(model), "run": args.JsonRestore()}
            restored = checkpoints.restore(latest, args=args.Composite(**items))
            model, saved = restored.model, restored.run
        with trackway.start(dir=folder / "runs", resume_state=saved) as run:
            for step in range(saved["next_step"] if saved else 0, STEPS):
                model = train_step(model, images, labels, step)
                if step % SAVE_EVERY == SAVE_EVERY - 1:
                    run.flush(commit_open=True)  # the rows up to here are on the disk before the checkpoint is
                    items = {"model": args.StandardSave(model), "run": args.JsonSave(run.state_dict())}
                    checkpoints.save(step, args=args.Composite(**items))
                if step == stop_at:
                    raise KeyboardInterrupt


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    data = jnp.asarray(images / 16), jnp.asarray(labels)
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(KeyboardInterrupt):
            train(Path(folder), *data, stop_at=STOPPED_AT)
        train(Path(folder), *data)
        for row in read_history(*Path(folder, "runs").iterdir()):
            print(f"step={row['_step']} loss={row['loss']} attempt={row.get('_attempt', 1)}")
