"""A small Google: the API's envelope over a real socket, and any answer or none at any call.

The rehearsal cloud is the whole thing; this one is for what a cloud never does by itself: it cuts connections before
or after the work was done, remembers request ids for an hour that never ends, and answers whatever a test wants.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .said import Said

Json = dict[str, Any]
ZONE = r"/v2/(?P<parent>projects/[^/]+/locations/[^/]+)"
ROUTES = (
    ("GET", ZONE + "/nodes", "ListNodes"),
    ("POST", ZONE + "/nodes", "CreateNode"),
    ("GET", ZONE + "/nodes/(?P<id>[^/:]+)", "GetNode"),
    ("DELETE", ZONE + "/nodes/(?P<id>[^/:]+)", "DeleteNode"),
    ("POST", ZONE + "/nodes/(?P<id>[^/:]+):start", "StartNode"),
    ("PATCH", ZONE + "/nodes/(?P<id>[^/:]+)", "UpdateNode"),
    ("GET", ZONE + "/queuedResources", "ListQueuedResources"),
    ("POST", ZONE + "/queuedResources", "CreateQueuedResource"),
    ("GET", ZONE + "/queuedResources/(?P<id>[^/:]+)", "GetQueuedResource"),
    ("DELETE", ZONE + "/queuedResources/(?P<id>[^/:]+)", "DeleteQueuedResource"),
    ("GET", ZONE + "/operations/(?P<id>[^/:]+)", "GetOperation"),
    ("POST", "/(?P<parent>token)", "Token"),  # Google's login
)


@dataclass(frozen=True)
class Answer:
    """An answer instead of the true one."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """No answer: the connection is reset, `after` the call was carried out or before."""

    after: bool


Fault = Answer | Cut


def refusal(said: Said, headers: Mapping[str, str] | None = None) -> Answer:
    error = {"code": said.http_status, "message": said.text, "status": said.status, "details": list(said.details)}
    return Answer(said.http_status, json.dumps({"error": error}).encode(), headers=headers or {})


class Google:
    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.queued: dict[str, Json] = {}
        self.operations: dict[str, Json] = {}
        self.request_ids: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.asked: list[tuple[str, dict[str, list[str]], Json]] = []
        self.ends_with: Json | None = None  # what every operation ends with, instead of well
        self.running = False  # operations don't end
        self.url = ""
        self._faults: dict[str, list[Fault]] = {}
        self._for_good: dict[str, Fault] = {}
        self._lock = threading.RLock()

    def next(self, method: str, *faults: Fault) -> None:
        """The next calls of `method` go like this."""
        self._faults.setdefault(method, []).extend(faults)

    def always(self, method: str, fault: Fault | None) -> None:
        """Every call of `method` goes like this; None ends it."""
        if fault is None:
            self._for_good.pop(method)
        else:
            self._for_good[method] = fault

    def handle(self, verb: str, target: str, body: Json) -> Answer | Cut:
        with self._lock:
            url = urlsplit(target)
            query = parse_qs(url.query)
            for wanted, pattern, method in ROUTES:  # noqa: B007 (used below, where the loop was broken off)
                if verb == wanted and (match := re.fullmatch(pattern, url.path)):
                    break
            else:
                return _error(404, "NOT_FOUND", f"no such method: {verb} {url.path}")
            self.calls[method] += 1
            self.asked.append((method, query, body))
            faults = self._faults.get(method)
            fault = faults.pop(0) if faults else self._for_good.get(method)
            if isinstance(fault, Answer) or (fault and not fault.after):
                return fault
            answer = getattr(self, f"_{method}")(match["parent"], match.groupdict().get("id"), query, body)
            return fault or answer

    def _ListNodes(self, parent: str, *_: Any) -> Answer:  # noqa: N802 (Google's names)
        return _json({"nodes": [node for node in self.nodes.values() if node["name"].startswith(parent + "/")]})

    def _CreateNode(self, parent: str, _id: Any, query: Any, body: Json) -> Answer:  # noqa: N802
        return self._make(self.nodes, f"{parent}/nodes/{query['nodeId'][0]}", {**body, "state": "READY", "id": "1"})

    def _GetNode(self, parent: str, name: str, *_: Any) -> Answer:  # noqa: N802
        return _get(self.nodes, f"{parent}/nodes/{name}")

    def _DeleteNode(self, parent: str, name: str, *_: Any) -> Answer:  # noqa: N802
        return self._remove(self.nodes, f"{parent}/nodes/{name}")

    def _StartNode(self, parent: str, name: str, *_: Any) -> Answer:  # noqa: N802
        node = self.nodes[f"{parent}/nodes/{name}"]
        if node["state"] != "STOPPED":
            text = f"Cloud TPU received a bad request. start is not supported while in state {node['state']}"
            return _error(400, "INVALID_ARGUMENT", text)
        node["state"] = "STARTING"
        return _json(self._operation(node["name"]))

    def _UpdateNode(self, parent: str, name: str, query: Any, body: Json) -> Answer:  # noqa: N802
        node = self.nodes[f"{parent}/nodes/{name}"]
        for path in query["updateMask"][0].split(","):
            node[path] = body.get(path, {})
        return _json(self._operation(node["name"]))

    def _ListQueuedResources(self, parent: str, *_: Any) -> Answer:  # noqa: N802
        found = [one for one in self.queued.values() if one["name"].startswith(parent + "/")]
        return _json({"queuedResources": found})

    def _CreateQueuedResource(self, parent: str, _id: Any, query: Any, body: Json) -> Answer:  # noqa: N802
        request = query["requestId"][0]
        if request in self.request_ids:
            return _json(self.operations[self.request_ids[request]])
        name = f"{parent}/queuedResources/{query['queuedResourceId'][0]}"
        answer = self._make(self.queued, name, {**body, "state": {"state": "ACTIVE"}})
        if answer.status == 200:
            self.request_ids[request] = json.loads(answer.body)["name"]
        return answer

    def _GetQueuedResource(self, parent: str, name: str, *_: Any) -> Answer:  # noqa: N802
        return _get(self.queued, f"{parent}/queuedResources/{name}")

    def _DeleteQueuedResource(self, parent: str, name: str, *_: Any) -> Answer:  # noqa: N802
        return self._remove(self.queued, f"{parent}/queuedResources/{name}")

    def _GetOperation(self, parent: str, name: str, *_: Any) -> Answer:  # noqa: N802
        return _get(self.operations, f"{parent}/operations/{name}")

    def _make(self, things: dict[str, Json], name: str, thing: Json) -> Answer:
        if name in things:
            return _error(409, "ALREADY_EXISTS", f"Resource '{name}' already exists")
        things[name] = {**thing, "name": name}
        return _json(self._operation(name))

    def _remove(self, things: dict[str, Json], name: str) -> Answer:
        if name not in things:
            return _error(404, "NOT_FOUND", f"Resource '{name}' was not found")
        del things[name]
        return _json(self._operation(name))

    def _operation(self, target: str) -> Json:
        parent = "/".join(target.split("/")[:4])
        name = f"{parent}/operations/operation-{len(self.operations)}"
        end = {"error": self.ends_with} if self.ends_with else {}
        if self.ends_with:
            self.nodes.pop(target, None)
        self.operations[name] = {"name": name, "done": not self.running, **end}
        return self.operations[name]


@contextmanager
def serving() -> Iterator[Google]:
    google = Google()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body go out at once

        def _serve(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = google.handle(self.command, self.path, json.loads(text) if text[:1] == b"{" else {})
            if isinstance(answer, Cut):
                # a reset rather than an orderly end, as a broken network does it
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {"Content-Type": answer.kind, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815 (http.server's names)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    google.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield google
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _json(value: Json) -> Answer:
    return Answer(200, json.dumps(value).encode())


def _get(things: dict[str, Json], name: str) -> Answer:
    return _json(things[name]) if name in things else _error(404, "NOT_FOUND", f"Resource '{name}' was not found")


def _error(code: int, status: str, text: str) -> Answer:
    return Answer(code, json.dumps({"error": {"code": code, "status": status, "message": text}}).encode())
