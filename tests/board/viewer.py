"""A viewer of the board's live line, as a browser is one: it keeps what it was told."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

from tests.board.rig import Site

WAIT_S = 30.0


class Viewer:
    """Reads server-sent events from one connection, and applies them as the page's script does."""

    def __init__(self, site: Site, *, last: int | None = None) -> None:
        self.events: list[str] = []
        self.parts: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.runs: dict[str, Any] = {}
        self.curves: dict[str, dict[str, list[list[float]]]] = {}
        self.version = last or 0
        self._left = b""
        self._socket = socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S)
        known = f"Last-Event-ID: {last}\r\n" if last is not None else ""
        cookies = "; ".join(f"{name}={value}" for name, value in site.cookies.items())
        cookie = f"Cookie: {cookies}\r\n" if cookies else ""
        self._socket.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\n{known}{cookie}\r\n".encode())
        self.head = self._until(b"\r\n\r\n").decode()
        self.status = int(self.head.split()[1])

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def wait(self, condition: Callable[[Viewer], Any]) -> Any:
        """Reads until `condition` holds."""
        while not (found := condition(self)):
            assert self.next(), f"the line ended; so far: {self.events}"
        return found

    def next(self) -> bool:
        """Reads the next event, and applies it; False at the end of the stream."""
        while block := self._block():
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "id" in fields:
                content = json.loads(fields["data"])
                assert int(fields["id"]) == content["version"] > self.version
                self._apply(fields["event"], content)
                return True
        return False

    def _apply(self, kind: str, content: dict[str, Any]) -> None:
        self.events.append(kind)
        self.version = content["version"]
        if kind == "all":
            self.parts, self.lists = content["parts"], content["lists"]
            self.runs, self.curves = content["runs"], content["curves"]
            return
        for part in content.get("gone", ()):
            del self.parts[part]
        self.parts |= content.get("parts", {})
        self.lists |= content.get("lists", {})
        for run in content.get("left", ()):
            del self.runs[run]
            self.curves.pop(run, None)
        self.runs |= content.get("runs", {})
        for run in content.get("anew", ()):
            self.curves.pop(run, None)
        for run, metrics in content.get("curves", {}).items():
            for name, (steps, values) in metrics.items():
                curve = self.curves.setdefault(run, {}).setdefault(name, [[], []])
                assert not curve[0] or not steps or curve[0][-1] < steps[0]
                curve[0] += steps
                curve[1] += values

    # ----------------------------------------------------------------------------------- chunks of HTTP, blocks of SSE

    def _block(self) -> str:
        """The next block of the stream, without its empty line; nothing at the end."""
        block = b""
        while not block.endswith(b"\n\n"):
            size = int(self._until(b"\r\n") or b"0", 16)
            if size == 0:
                return ""
            block += self._exactly(size + 2)[:-2]
        return self._split(block)

    def _split(self, block: bytes) -> str:
        """A chunk may hold several blocks: the first is given, and the others are put back as chunks of their own."""
        first, _, rest = block.partition(b"\n\n")
        if rest:
            self._left = b"%x\r\n%s\r\n" % (len(rest), rest) + self._left
        return first.decode()

    def _until(self, end: bytes) -> bytes:
        while end not in self._left:
            more = self._socket.recv(1 << 16)
            if not more:
                return b""
            self._left += more
        found, _, self._left = self._left.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._left) < size:
            more = self._socket.recv(1 << 16)
            assert more, "cut in the middle of an event"
            self._left += more
        found, self._left = self._left[:size], self._left[size:]
        return found
