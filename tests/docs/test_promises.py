"""Sentences of the pages that no example shows."""

from __future__ import annotations

import os
import subprocess
import sys

CACHED = """
import sys
import jax, jax.numpy as jnp
import trackway

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

def silent(x):
    return jnp.sin(x) * 3

def logging(x):
    trackway.log({"x": x[0]})
    return jnp.sin(x) * 3

with trackway.current_tracker(trackway.NoopTracker()):
    jax.block_until_ready(jax.jit(silent if sys.argv[2] == "silent" else logging)(jnp.arange(8.0)))
"""


def _cache_entries(folder, kind):
    """Return the names of cached programs that hold *kind* after it was compiled in a process of its own."""
    folder.mkdir()
    command = [sys.executable, "-c", CACHED, str(folder), kind]
    done = subprocess.run(
        command, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [path.name for path in folder.iterdir() if kind in path.name]


def test_programs_that_log_by_host_callback_are_not_in_the_persistent_cache(tmp_path):
    """JAX keeps a compiled function in its persistent cache, but not one that logs by host callback."""
    assert _cache_entries(tmp_path / "first", "silent")
    assert _cache_entries(tmp_path / "second", "logging") == []
