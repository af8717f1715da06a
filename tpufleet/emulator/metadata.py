"""A host's metadata server, where `GCE_METADATA_HOST` says.

Source: Google's "View and query VM metadata" (the header both ways, 403 without it) and the attributes that
Cloud TPU sets on its VMs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote, urlsplit

Tree = Mapping[str, Any]
LONGEST_HEAD_S = 10
TPU_PORT = 8470


async def serve(address: str, values: Callable[[], Tree]) -> asyncio.Server:
    """Answers on a free port of `address` with what `values` gives at that moment."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(LONGEST_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_response(head.decode("latin-1"), values()))
            await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, address, 0)


def _response(head: str, values: Tree) -> bytes:
    status, body, kind = _answer(head, values)
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Metadata-Flavor: Google",
        "Server: Metadata Server for VM",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def _answer(head: str, values: Tree) -> tuple[HTTPStatus, bytes, str]:
    request, *lines = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, _, rest = request.partition(" ")
    if method not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/html"
    if headers.get("metadata-flavor") != "Google":
        return HTTPStatus.FORBIDDEN, b"Missing Metadata-Flavor:Google header.\n", "text/html"
    target = urlsplit(rest.partition(" ")[0])
    found = lookup(values, unquote(target.path))
    if found is None:
        return HTTPStatus.NOT_FOUND, b"", "text/html"
    if isinstance(found, str):
        return HTTPStatus.OK, found.encode(), "application/text"
    if "recursive=true" in target.query.lower():
        return HTTPStatus.OK, json.dumps(found).encode(), "application/json"
    names = (f"{name}/\n" if isinstance(value, dict) else f"{name}\n" for name, value in found.items())
    return HTTPStatus.OK, "".join(names).encode(), "application/text"


def lookup(values: Tree, path: str) -> str | Tree | None:
    """What stands at `path` (`/computeMetadata/v1/…`): a text, a directory, or None."""
    found: Any = {"computeMetadata": {"v1": values}}
    for name in filter(None, path.split("/")):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = cast(Tree, found)[name]
    return found


def values_of(node: Mapping[str, Any], host: str, worker: int) -> Tree:
    """The tree of one host of `node` (the API's Node)."""
    _, project, _, zone, _, node_id = node["name"].split("/")
    config = node["acceleratorConfig"]
    environment = {
        "ACCELERATOR_TYPE": node["acceleratorType"],
        "TYPE": config["type"],
        "TOPOLOGY": config["topology"],
        "WORKER_ID": str(worker),
        "NODE_ID": node_id,
        "ZONE": zone,
        "CONSUMER_PROJECT_ID": project,
        "RUNTIME_VERSION": node["runtimeVersion"],
    }
    addresses = [endpoint["ipAddress"] for endpoint in node.get("networkEndpoints", [])]
    attributes = {
        **node.get("metadata", {}),
        "accelerator-type": node["acceleratorType"],
        "agent-worker-number": str(worker),
        "instance-id": node_id,
        "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in environment.items()),
        "worker-network-endpoints": ",".join(f"{ip}:{TPU_PORT}:{ip}" for ip in addresses),
    }
    return {
        "instance": {
            "id": node["id"],
            "name": host,
            "hostname": f"{host}.{zone}.c.{project}.internal",
            "zone": f"projects/{project}/zones/{zone}",
            "attributes": attributes,
            "tags": json.dumps(node.get("tags", [])),
        },
        "project": {"project-id": project},
    }
