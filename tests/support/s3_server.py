"""An S3 server on 127.0.0.1, which counts what it is asked."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

BUCKET = "bucket"


class Counted:
    """A WSGI application that counts the requests to *inner*, and can refuse them.

    Attributes:
        requests: Number of requests by method.
        received: Bytes received as the bodies of requests.
        sent: Bytes sent as the bodies of answers.
        away: Answer every request with an error.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.lock = threading.Lock()
        self.away = False
        self.clear()

    def clear(self) -> None:
        """Begin to count anew."""
        self.requests: Counter[str] = Counter()
        self.received = self.sent = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer one request."""
        with self.lock:
            self.requests[environ["REQUEST_METHOD"]] += 1
            self.received += int(environ.get("CONTENT_LENGTH") or 0)
        if self.away:
            start_response("403 Forbidden", [("Content-Length", "0")])
            return [b""]
        body = b"".join(self.inner(environ, start_response))
        with self.lock:
            self.sent += len(body)
        return [body]


@contextlib.contextmanager
def s3_server() -> Iterator[Counted]:
    """Run a server with one empty bucket; the environment leads clients to it, in child processes too."""
    import boto3
    from moto.server import ThreadedMotoServer
    from s3fs import S3FileSystem

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        reset = urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")
        urllib.request.urlopen(reset).close()  # the servers of a process share what they hold
        with mock.patch.dict(os.environ, environment):
            client = boto3.client("s3")
            client.create_bucket(Bucket=BUCKET)
            client.close()
            counted = Counted(server._server.app)
            server._server.app = counted
            S3FileSystem.clear_instance_cache()  # those of an earlier server would be used again
            yield counted
    finally:
        server.stop()
