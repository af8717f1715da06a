"""A host's metadata server, where `GCE_METADATA_HOST` says.

Source: Google's "View and query VM metadata" (the header both ways, 403 without it) and the attributes that
Cloud TPU sets on its VMs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from tpufleet.emulator.nodes import TPU_PORT, NodeRecord
from tpufleet.emulator.wire import Json, project_number

Tree = Mapping[str, Any]
LONGEST_HEAD_S = 10
LONGEST_WAIT_S = 300  # a client that wants to wait longer asks again, as Google's own libraries do
LOOK_S = 0.1
TOKEN_S = 3599
TOKEN_PREFIX = "rehearsal-"  # noqa: S105 - says whose a token is, opens nothing


@dataclass(frozen=True)
class Document:
    """A leaf that is JSON, such as an access token."""

    content: Json


@dataclass(frozen=True)
class Answer:
    """A response; `etag` names what it says."""

    status: HTTPStatus
    body: bytes = b""
    kind: str = "text/html"

    @property
    def etag(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:16]

    def encoded(self) -> bytes:
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Metadata-Flavor: Google",
            "Server: Metadata Server for VM",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            f"ETag: {self.etag}",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + self.body


async def serve(address: str, values: Callable[[], Tree]) -> asyncio.Server:
    """Answers on a free port of `address` with what `values` gives at that moment."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(LONGEST_HEAD_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            found = await _changed(head, values, lambda: server.is_serving() and not reader.at_eof())
            writer.write(found.encoded())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, address, 0)
    return server


async def _changed(head: str, values: Callable[[], Tree], is_wanted: Callable[[], bool]) -> Answer:
    """The answer; for `?wait_for_change=true` when it isn't `last_etag` (or the present one) any more.

    It is looked at again and again, since a value may depend on anything; `timeout_sec` ends it as it stands.
    """
    query = parse_qs(urlsplit(head.split(" ", 2)[1] if head.count(" ") > 1 else "").query)
    found = _answer(head, values())
    if query.get("wait_for_change", [""])[-1].lower() != "true" or found.status != HTTPStatus.OK:
        return found
    known = query.get("last_etag", [found.etag])[-1]
    seconds = query.get("timeout_sec", [""])[-1]
    deadline = time.monotonic() + min(int(seconds) if seconds.isdecimal() else LONGEST_WAIT_S, LONGEST_WAIT_S)
    while found.etag == known and is_wanted() and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_S)
        found = _answer(head, values())
    return found


def _answer(head: str, values: Tree) -> Answer:
    request, *lines = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, _, rest = request.partition(" ")
    if method not in ("GET", "HEAD"):
        return Answer(HTTPStatus.METHOD_NOT_ALLOWED)
    if headers.get("metadata-flavor") != "Google":
        return Answer(HTTPStatus.FORBIDDEN, b"Missing Metadata-Flavor:Google header.\n")
    target = urlsplit(rest.partition(" ")[0])
    found = lookup(values, unquote(target.path))
    return Answer(HTTPStatus.NOT_FOUND) if found is None else _rendered(found, "recursive=true" in target.query.lower())


def _rendered(found: str | Document | Tree, whole: bool) -> Answer:
    """A text as it is, a directory as its names or, when it is wanted `whole`, as JSON."""
    if isinstance(found, str):
        return Answer(HTTPStatus.OK, found.encode(), "application/text")
    if isinstance(found, Document):
        return Answer(HTTPStatus.OK, json.dumps(found.content).encode(), "application/json")
    if whole:
        return Answer(HTTPStatus.OK, json.dumps(_plain(found)).encode(), "application/json")
    names = (f"{name}/\n" if isinstance(value, dict) else f"{name}\n" for name, value in found.items())
    return Answer(HTTPStatus.OK, "".join(names).encode(), "application/text")


def _plain(tree: Tree) -> Json:
    """The tree for JSON, without documents, which are never part of a listing (a token least of all)."""
    return {
        name: _plain(cast(Tree, value)) if isinstance(value, Mapping) else value
        for name, value in tree.items()
        if not isinstance(value, Document)
    }


def lookup(values: Tree, path: str) -> str | Tree | Document | None:
    """What stands at `path` (`/computeMetadata/v1/…`): a text, a directory, or None."""
    found: Any = {"computeMetadata": {"v1": values}}
    for name in filter(None, path.split("/")):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = cast(Tree, found)[name]
    return found


def values_of(node: NodeRecord, host: str, worker: int, project_metadata: Mapping[str, str]) -> Tree:
    """The tree of one host of `node`."""
    resource = node.wire()
    return {
        "instance": {
            "id": resource["id"],
            "name": host,
            "hostname": f"{host}.{node.zone}.c.{node.project}.internal",
            "zone": f"projects/{project_number(node.project)}/zones/{node.zone}",
            "attributes": _attributes(node, worker),
            "tags": json.dumps(resource.get("tags", [])),
            "network-interfaces": {"0": _interface(resource, worker)},
            "service-accounts": _service_accounts(node),
            "maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE" if worker in node.maintenance else "NONE",
            "preempted": _flag(node.state == "PREEMPTED"),
            "scheduling": {
                "automatic-restart": _flag(not node.use.spot),
                "on-host-maintenance": "TERMINATE",
                "preemptible": _flag(node.use.spot),
            },
        },
        "project": {
            "project-id": node.project,
            "numeric-project-id": project_number(node.project),
            "attributes": dict(project_metadata),
        },
    }


def _flag(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _attributes(node: NodeRecord, worker: int) -> dict[str, str]:
    """The node's metadata, and what Cloud TPU adds for each worker."""
    config = node.resource["acceleratorConfig"]
    node_id = node.name.rpartition("/")[2]
    environment = {
        "ACCELERATOR_TYPE": node.accelerator.name,
        "TYPE": config["type"],
        "TOPOLOGY": config["topology"],
        "WORKER_ID": str(worker),
        "NODE_ID": node_id,
        "ZONE": node.zone,
        "CONSUMER_PROJECT_ID": node.project,
        "RUNTIME_VERSION": node.resource["runtimeVersion"],
    }
    addresses = [node.address(one) for one in range(node.accelerator.hosts)] if node.number else []
    return {
        **node.metadata,
        "accelerator-type": node.accelerator.name,
        "agent-worker-number": str(worker),
        "instance-id": node_id,
        "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in environment.items()),
        "worker-network-endpoints": ",".join(f"{ip}:{TPU_PORT}:{ip}" for ip in addresses),
    }


def _interface(resource: Json, worker: int) -> Tree:
    """The first network interface; one without an external address has an empty one, as on Compute Engine."""
    networks = len(resource.get("networkConfigs", [])) or 1
    ends: list[Json] = resource.get("networkEndpoints", [])[worker * networks :][:1]
    address = ends[0]["ipAddress"] if ends else ""
    external = ends[0].get("accessConfig", {}).get("externalIp", "") if ends else ""
    return {"ip": address, "access-configs": {"0": {"external-ip": external, "type": "ONE_TO_ONE_NAT"}}}


def _service_accounts(node: NodeRecord) -> Tree:
    """The account under its address and as `default`; empty (so 404 below it) for a node without one."""
    account: Json | None = node.resource.get("serviceAccount")
    if not account:
        return {}
    token = {"access_token": token_of(node), "expires_in": TOKEN_S, "token_type": "Bearer"}
    entry = {
        "aliases": "default\n",
        "email": account["email"],
        "scopes": "".join(f"{scope}\n" for scope in account["scope"]),
        "token": Document(token),
    }
    return {"default": entry, account["email"]: entry}


def token_of(node: NodeRecord) -> str:
    """The access token of a node's hosts; the API knows by it which scopes the caller has. Worth nothing elsewhere."""
    return f"{TOKEN_PREFIX}{node.resource['id']}"
