"""As much of a W&B server as its client needs for a run, on this machine and in memory."""

from __future__ import annotations

import gzip
import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENTITY = "me"


class Run:
    """What the server has of one run."""

    def __init__(self, project, name):
        self.project, self.name, self.id = project, name, uuid.uuid4().hex
        self.display_name, self.tags = name, []
        self.config, self.summary, self.lines, self.output, self.files = {}, {}, {}, {}, {}
        self.exit_code = None

    @property
    def rows(self):
        """The history, without what the client adds to it."""
        return [
            {name: value for name, value in self.lines[number].items() if name not in {"_timestamp", "_runtime"}}
            for number in sorted(self.lines)
        ]

    def bucket(self):
        """The run as queries are answered."""
        history = [self.lines[number] for number in sorted(self.lines)]
        return {
            "id": self.id,
            "name": self.name,
            "displayName": self.display_name,
            "description": "",
            "sweepName": None,
            "notes": None,
            "tags": self.tags,
            "config": json.dumps({name: {"value": value} for name, value in self.config.items()}),
            "wandbConfig": '{"t": 1}',
            "summaryMetrics": json.dumps(self.summary),
            "historyLineCount": len(history),
            "historyTail": json.dumps([json.dumps(row) for row in history[-1:]]),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": len(self.output),
            "project": {"id": "project", "name": self.project, "entity": {"id": "entity", "name": ENTITY}},
        }


class FakeWandb(ThreadingHTTPServer):
    """The server; a context manager.

    Attributes:
        runs: What it has, by the run's id.
        artifacts: Those that were made.
        alerts: Those that were sent.
        unknown: What it was asked and knows no answer to.
        refuse: Is told the operation, and returns the HTTP status to answer with, or None.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.RLock()
        self.runs, self.artifacts, self.alerts, self.unknown = {}, {}, [], []
        self.refuse = lambda operation: None
        self._connections = set()

    @property
    def url(self):
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """Say nothing of clients that go away."""

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.kill()

    def process_request(self, request, client_address):
        """Note the connection, so that `kill` can cut it."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def kill(self):
        """Answer nothing any more, as a server that died."""
        self.shutdown()
        self.server_close()
        for connection in self._connections:
            try:
                connection.shutdown(2)
            except OSError:
                continue

    def run_of(self, variables):
        """Return the run that a query is about, which is made if it is not there."""
        name = variables.get("name") or variables.get("run")
        return self.runs.setdefault(name, Run(variables["project"], name))

    def answer(self, operation, variables):
        """Return the data of a GraphQL query."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", operation).lower()
        method = getattr(self, f"_answer_{words}", None)
        if method is not None:
            return method(variables)
        if operation in _CONSTANT:
            return _CONSTANT[operation]
        self.unknown.append(operation)
        return {}

    def _answer_upsert_bucket(self, variables):
        new = variables["name"] not in self.runs
        run = self.run_of(variables)
        if variables.get("config"):
            run.config |= {name: entry["value"] for name, entry in json.loads(variables["config"]).items()}
        if variables.get("summaryMetrics"):
            run.summary |= json.loads(variables["summaryMetrics"])
        run.tags = variables.get("tags") or run.tags
        run.display_name = variables.get("displayName") or run.display_name
        return {"upsertBucket": {"inserted": new, "bucket": run.bucket()}}

    def _answer_run_resume_status(self, variables):
        run = self.runs.get(variables["name"])
        entity = {"id": "entity", "name": ENTITY}
        bucket = None if run is None else run.bucket()
        return {"model": {"id": "project", "name": variables["project"], "entity": entity, "bucket": bucket}}

    def _answer_create_run_files(self, variables):
        run = self.run_of(variables)
        files = [{"name": name, "uploadUrl": f"{self.url}/put/run/{run.name}/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": run.id, "uploadHeaders": [], "files": files}}

    def _answer_notify_scriptable_run_alert(self, variables):
        self.alerts.append(variables)
        return {"notifyScriptableRunAlert": {"success": True}}

    def _answer_create_artifact(self, variables):
        key = uuid.uuid4().hex
        self.artifacts[key] = {**variables["input"], "id": key, "state": "PENDING", "files": {}, "manifest": None}
        artifact = {"id": key, "state": "PENDING", "artifactSequence": {"latestArtifact": None}}
        return {"createArtifact": {"artifact": artifact}}

    def _manifest(self, key):
        file = {"id": f"file-{key}", "uploadUrl": f"{self.url}/put/manifest/{key}", "uploadHeaders": []}
        return {"artifactManifest": {"id": f"manifest-{key}", "file": file}}

    def _answer_create_artifact_manifest(self, variables):
        return {"createArtifactManifest": self._manifest(variables["artifactID"])}

    def _answer_update_artifact_manifest(self, variables):
        return {"updateArtifactManifest": self._manifest(variables["artifactManifestID"].removeprefix("manifest-"))}

    def _answer_create_artifact_files(self, variables):
        nodes = [
            {
                "storagePath": file["name"],
                "uploadUrl": f"{self.url}/put/artifact/{file['artifactID']}/{file['name']}",
                "uploadHeaders": [],
                "uploadMultipartUrls": None,
                "artifact": {"id": file["artifactID"]},
            }
            for file in variables["input"]["artifactFiles"]
        ]
        return {"createArtifactFiles": {"files": {"edges": [{"node": node} for node in nodes]}}}

    def _answer_commit_artifact(self, variables):
        artifact = self.artifacts[variables["artifactID"]]
        artifact["state"] = "COMMITTED"
        return {"commitArtifact": {"artifact": {"id": artifact["id"], "digest": artifact["digest"]}}}

    def _answer_client_id_mapping(self, variables):
        same = (one["id"] for one in self.artifacts.values() if one.get("clientID") == variables["clientID"])
        return {"clientIDMapping": {"serverID": next(same, None)}}

    def stream(self, name, content):
        """Take a piece of a run's history, summary or output."""
        run = self.runs[name]
        for file, chunk in (content.get("files") or {}).items():
            lines = dict(enumerate(chunk.get("content") or [], start=chunk.get("offset", 0)))
            if file == "wandb-history.jsonl":
                run.lines |= {number: json.loads(line) for number, line in lines.items()}
            elif file == "wandb-summary.json":
                run.summary = json.loads(list(lines.values())[-1])
            elif file == "output.log":
                run.output |= lines
        if content.get("complete") is not None:
            run.exit_code = content.get("exitcode")

    def store(self, kind, place, data):
        """Take an uploaded file."""
        if kind == "manifest":
            self.artifacts[place]["manifest"] = json.loads(data)
            return
        owner, name = place.split("/", 1)
        (self.runs[owner].files if kind == "run" else self.artifacts[owner]["files"])[name] = data


_VIEWER = {"id": "user", "entity": ENTITY, "username": ENTITY, "email": "me@localhost", "flags": "{}"}
_CONSTANT = {
    "Viewer": {"viewer": {**_VIEWER, "teams": {"edges": [{"node": {"name": ENTITY}}]}}},
    "ServerFeaturesQuery": {"serverInfo": {"features": []}},
    "OrganizationCoreWeaveOrganizationID": {},
    "OrgFeatureFlags": {"organization": {"featureFlags": []}},
    "MarkRunFilesUploaded": {"markRunFilesUploaded": {"success": True}},
    "XXHashDigestsEnabled": {"entity": {"xxhashDigestsEnabled": False}},
    "FetchArtifactDigestAlgorithm": {"project": {"artifactType": None}},
    "ArtifactType": {"project": {"artifact": None}},
    "RunState": {"project": {"run": {"id": "run", "state": "running"}}},
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Log nothing."""

    def _body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        """Answer a query, or take a piece of a history."""
        body = self._body()
        with self.server.lock:
            if self.path == "/graphql":
                query = json.loads(body)
                named = re.search(r"(?:query|mutation)\s+(\w+)", query["query"])
                operation = query.get("operationName") or named[1]
                status = self.server.refuse(operation)
                if status:
                    self._reply(status, {"errors": [{"message": "refused"}]})
                else:
                    self._reply(200, {"data": self.server.answer(operation, query.get("variables") or {})})
            elif self.path.endswith("/file_stream"):
                status = self.server.refuse("file_stream")
                if not status:
                    self.server.stream(self.path.split("/")[-2], json.loads(body))
                self._reply(status or 200, {"limits": {}})
            elif self.path.startswith("/sdk/otel"):
                self._reply(200, {})
            else:
                self.server.unknown.append(self.path)
                self._reply(404, {})

    def do_PUT(self):
        """Take a file."""
        body = self._body()
        with self.server.lock:
            _, _, kind, place = self.path.split("/", 3)
            self.server.store(kind, place, body)
        self._reply(200, {})

    def do_GET(self):
        """Know nothing."""
        self.server.unknown.append(self.path)
        self._reply(404, {})
