"""What a run on an object store costs: requests and bytes, at several lengths, and what a killed writer loses.

Run it as `python benchmarks/object_store.py`. It starts an S3 server on 127.0.0.1, which needs `moto[s3]`, `flask` and
`s3fs`. Segments are 64 KiB here instead of 4 MiB, so that a short run has many.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from s3_server import Counted, s3_server

import trackway
from trackway.store import _mirror, read_rows
from trackway.store._remote import Remote

URL = "s3://bucket/runs"
LENGTHS = (5_000, 10_000, 20_000)
SEGMENT = 1 << 16
INTERVAL = 1.0
KILLS = 6

WRITER = """
import sys, time, trackway
from trackway.backends.local import LocalConfig
trackway.start([LocalConfig(upload_interval=float(sys.argv[2]))], dir=sys.argv[1], run_id="killed")
for step in range(1_000_000):
    trackway.log({"loss": step / 7}, step=step, commit=True)
    print(step, time.monotonic(), flush=True)
    time.sleep(0.002)
"""


def cost(server: Counted, rows: int) -> str:
    """Write a run of so many rows; return a line of the table."""
    run_id = f"rows-{rows}"
    server.clear()
    with trackway.start(dir=URL, run_id=run_id):
        begun = time.perf_counter()
        for step in range(rows):
            trackway.log({"train/loss": step / 7, "train/accuracy": 1 - step / 1e6, "lr": 1e-3}, step=step)
        logging = time.perf_counter() - begun
        begun = time.perf_counter()
    ending = time.perf_counter() - begun
    others = server.requests.total() - server.requests["PUT"]
    received, puts = server.received, server.requests["PUT"]
    size = sum(size for name, size in Remote(f"{URL}/{run_id}").listing().items() if name.startswith("metrics/"))
    server.clear()
    assert len(read_rows(f"{URL}/{run_id}")) == rows
    reads = server.requests.total()
    return (
        f"| {rows:,} | {size / 1e6:.2f} | {received / 1e6:.2f} | {puts} | {others} | {reads} | "
        f"{logging / rows * 1e6:.1f} | {ending:.2f} |"
    )


def lost(number: int, interval: float, seconds: float) -> tuple[int, float]:
    """Kill a writer; return how many rows the store did not get, and how old the first one of them was."""
    command = [sys.executable, "-c", WRITER, f"{URL}/{number}", str(interval)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        killed = time.monotonic()
        logged = [line.split() for line in process.stdout.read().splitlines()]
    stored = len(read_rows(f"{URL}/{number}/killed"))
    missing = [killed - float(when) for step, when in logged if int(step) >= stored]
    return len(missing), max(missing, default=0.0)


def main() -> None:
    """Print the table."""
    with s3_server() as server:
        _mirror.SEGMENT = SEGMENT
        print(
            "| rows | MB of rows | MB sent | PUT | other requests | requests to read all | us per row | s to finish |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|---:|")
        for rows in LENGTHS:
            print(cost(server, rows))
        losses = [lost(number, INTERVAL, 2.0 + number / KILLS) for number in range(KILLS)]
        print(f"\n{KILLS} writers that were killed, with an interval of {INTERVAL:.0f} s:")
        for rows, age in losses:
            print(f"  {rows} rows were not on the store, the oldest {age:.2f} s old")


if __name__ == "__main__":
    main()
