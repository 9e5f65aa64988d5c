"""A web service on 127.0.0.1 to which alerts can be sent."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["AlertReceiver", "receiving"]

WAIT = 20.0


class AlertReceiver:
    """Keeps what is posted to it.

    Attributes:
        url: Its address, as apprise writes it.
        bodies: The JSON of each request that was answered with 200.
        refused: How many were answered otherwise.
        answers: The status of the next answers; 200 once it is empty.
        go: Answers wait for it.
    """

    def __init__(self) -> None:
        """Listen on a free port."""
        self.bodies: list[dict[str, Any]] = []
        self.refused = 0
        self.answers: list[int] = []
        self.go = threading.Event()
        self.go.set()
        self._came = threading.Condition()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"json://127.0.0.1:{self._server.server_port}/"

    def start(self) -> None:
        """Answer, on a thread."""
        self._thread.start()

    def take(self, body: dict[str, Any]) -> int:
        """Keep *body* or refuse it; return the status."""
        assert self.go.wait(WAIT)
        with self._came:
            status = self.answers.pop(0) if self.answers else 200
            if status == 200:
                self.bodies.append(body)
            else:
                self.refused += 1
            self._came.notify_all()
        return status

    def wait_for(self, bodies: int, refused: int = 0) -> bool:
        """Wait until so many requests came; return whether they did."""
        with self._came:
            return self._came.wait_for(lambda: len(self.bodies) >= bodies and self.refused >= refused, WAIT)

    def close(self) -> None:
        """Answer no more."""
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(receiver: AlertReceiver) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with contextlib.suppress(OSError):  # who asked may have left
                self.send_response(receiver.take(body))
                self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep the tests' output clean."""

    return Handler


@contextlib.contextmanager
def receiving() -> Iterator[AlertReceiver]:
    """Run a receiver beside the block."""
    receiver = AlertReceiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.close()
