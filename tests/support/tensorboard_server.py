"""A real TensorBoard server on 127.0.0.1 for a block, and a client of its HTTP interface."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["get", "hparams_table", "serve", "wait_for"]


@contextlib.contextmanager
def serve(logdir: str | Path, *, timeout: float = 60.0) -> Iterator[str]:
    """Serve *logdir* and yield the URL, without a slash at its end, once the server answers; stop it at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--reload_interval", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _answers(url, process), timeout)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether the server answers; raises if it has ended."""
    if process.poll() is not None:
        raise RuntimeError(f"tensorboard ended with status {process.returncode}")
    try:
        return get(url, "/data/runs") is not None
    except OSError:
        return False


def get(url: str, path: str, body: Any = None, **query: Any) -> Any:
    """Return the JSON, or else the bytes, that the server has at *path*; *body* makes it a POST."""
    full = f"{url}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(full, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        content = response.read()
        return json.loads(content) if "json" in response.headers.get("Content-Type", "") else content


def wait_for(condition: Callable[[], Any], timeout: float = 30.0) -> Any:
    """Return what *condition* returns as soon as that is true; the server loads new events after a while."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {timeout:g} s")
        time.sleep(0.2)
    return result


def hparams_table(url: str) -> list[dict[str, Any]]:
    """Return the rows of the HParams view: `name`, `status`, `hparams` and `metrics` (tag to value)."""
    experiment = get(url, "/data/plugin/hparams/experiment", {"experimentName": ""})
    columns = [{"metric": info["name"]} for info in experiment.get("metricInfos", [])]
    columns += [{"hparam": info["name"]} for info in experiment.get("hparamInfos", [])]
    statuses = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
    query = {"experimentName": "", "allowedStatuses": statuses, "colParams": columns, "startIndex": 0, "sliceSize": 99}
    groups = get(url, "/data/plugin/hparams/session_groups", query).get("sessionGroups", [])
    return [
        {
            "name": group["name"],
            "status": group["sessions"][0].get("status"),
            "hparams": group["hparams"],
            "metrics": {value["name"]["tag"]: value["value"] for value in group.get("metricValues", [])},
        }
        for group in groups
    ]
