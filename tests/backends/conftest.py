"""What tests of several files share."""

from __future__ import annotations

import pytest


@pytest.fixture
def wandb_folders(tmp_path, monkeypatch):
    """W&B keeps everything below the test's folder, and tells nobody of anything."""
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        folder = tmp_path / "wandb-home" / name
        folder.mkdir(parents=True)
        monkeypatch.setenv(f"WANDB_{name}", str(folder))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_CONSOLE", "off")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    yield
    import wandb

    if wandb.run is not None:
        wandb.run.finish()
