"""Run directories to look at."""

from __future__ import annotations

import json
import time

from trackway.store import LocalTracker


def write_run(folder, run_id, rows, config=None, summary=None):
    """Write a finished run of rows, each a pair of a step and its values."""
    with LocalTracker(folder / run_id, run_id=run_id) as tracker:
        if config:
            tracker.log_hyperparameters(config)
        for step, values in rows:
            tracker.log(values, step=step)
        if summary:
            tracker.log_summary(summary)
    return folder / run_id


def stranger(folder, **content):
    """Write a run directory by hand, as somebody else might: the manifest, summary, config and rows given."""
    folder.mkdir(parents=True)
    manifest = {"format": 1, "id": folder.name, "state": "finished", "heartbeat": time.time(), "attempts": []}
    (folder / "run.json").write_text(json.dumps(manifest | content.get("manifest", {})))
    (folder / "summary.json").write_text(json.dumps(content.get("summary", {})))
    (folder / "config.yaml").write_text(json.dumps(content.get("config", {})))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content.get("rows", [])))
    return folder
