"""A store in memory, and spools, that belong to one test."""

from __future__ import annotations

import tempfile

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from trackway.store import _remote_spool

__all__ = ["spools"]


@pytest.fixture(autouse=True)
def spools(tmp_path, monkeypatch):
    """Where spools are; the store in memory is empty."""
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield _remote_spool._home()
    MemoryFileSystem.store.clear()
