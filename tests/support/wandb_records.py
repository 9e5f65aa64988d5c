"""What stands in the record file of a W&B run: blocks of a LevelDB log that hold protocol buffers."""

from __future__ import annotations

import json
import struct
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

BLOCK = 32768
HEADER = struct.Struct("<IHB")  # checksum, length, kind: whole, first, middle or last part of a record
WHOLE, LAST = 1, 4
_OWN = {"_timestamp", "_runtime"}


def _bodies(data):
    """Yield the bytes of each record."""
    if not data:  # nothing is written yet
        return
    assert data[:4] == b":W&B"
    at, parts = 7, []
    while at + HEADER.size <= len(data):
        if BLOCK - at % BLOCK < HEADER.size:  # the end of a block, too short for another header
            at += BLOCK - at % BLOCK
            continue
        checksum, length, kind = HEADER.unpack_from(data, at)
        body = data[at + HEADER.size : at + HEADER.size + length]
        if not kind or len(body) < length:
            return
        assert zlib.crc32(bytes([kind]) + body) == checksum
        at += HEADER.size + length
        parts.append(body)
        if kind in {WHOLE, LAST}:
            yield b"".join(parts)
            parts = []


def _merge(into, items):
    """Put the JSON values of *items* under their names, which may be paths."""
    for item in items:
        *path, name = list(item.nested_key) or [item.key]
        place = into
        for part in path:
            if not isinstance(place.get(part), dict):
                place[part] = {}
            place = place[part]
        place[name] = json.loads(item.value_json)
    return into


def read_records(path):
    """Return rows, config, summary, artifacts, metrics, alerts, exit code and the run of a run that has ended.

    The client's `finish` of an offline run returns a little before its service has written the file.
    """
    deadline = time.monotonic() + 10
    while (found := _read(path)).code is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def _read(path):
    """Return what the file holds by now."""
    from wandb.proto import wandb_internal_pb2

    found = SimpleNamespace(rows=[], config={}, summary={}, artifacts=[], metrics=[], alerts=[], code=None, run=None)
    for body in _bodies(Path(path).read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(body)
        match record.WhichOneof("record_type"):
            case "history":
                row = _merge({}, record.history.item)
                found.rows.append(
                    {name: value for name, value in row.items() if name not in {"_timestamp", "_runtime"}}
                )
            case "run":
                found.run = record.run
                _merge(found.config, record.run.config.update)
            case "config":
                _merge(found.config, record.config.update)
            case "summary":
                _merge(found.summary, record.summary.update)
            case "artifact":
                found.artifacts.append(record.artifact)
            case "metric":
                found.metrics.append(record.metric)
            case "alert":
                found.alerts.append(record.alert)
            case "exit":
                found.code = record.exit.exit_code
    return found


def record_files(folder):
    """Return the record files below *folder*, oldest first."""
    return sorted(path for path in Path(folder).glob("**/*run-*/run-*.wandb") if "latest-run" not in path.parts)


def offline_config(**fields):
    """Return the configuration of an offline run."""
    from trackway.backends.wandb import WandbConfig

    return WandbConfig(**{"mode": "offline", "save_code": False, "background": False, **fields})


def records_of(folder):
    """Return what stands in the one record file below *folder*."""
    (path,) = record_files(folder)
    return read_records(path)
