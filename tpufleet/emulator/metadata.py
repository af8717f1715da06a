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

from tpufleet.emulator.wire import Json

Tree = Mapping[str, Any]
LONGEST_HEAD_S = 10
LONGEST_WAIT_S = 300  # a client that wants to wait longer asks again, as Google's own libraries do
LOOK_S = 0.1


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
