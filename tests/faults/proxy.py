"""A line between a command and a host that can be made bad: late, narrow, cut at a byte, silent.

One event loop in a thread serves all proxies of a process. Both ways of a connection are counted, so a test can say at
which byte its fault is to happen, and see that it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")
PIECE = 16384
WAITING = 32 << 10  # bytes on their way; the sender is stopped beyond, as by a real line's buffers


class Way(StrEnum):
    """`UP` is from the command to the host."""

    UP = "up"
    DOWN = "down"


class End(StrEnum):
    """What becomes of a line. `SILENT`: the connection stays, nothing passes any more, nobody is told (half-open)."""

    RESET = "reset"
    CLOSED = "closed"
    SILENT = "silent"


@dataclass(frozen=True)
class Line:
    """How good a connection is: seconds each way, bytes per second each way, its end after `at` bytes of one way."""

    delay_s: float = 0.0
    rate: float = 0.0
    end: End | None = None
    way: Way = Way.DOWN
    at: int = 0


WHOLE = Line()


@dataclass
class Wire:
    """One connection: what `passed` each way, and whether its end has `happened`."""

    line: Line
    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    passed: dict[Way, int] = field(default_factory=lambda: {Way.UP: 0, Way.DOWN: 0})
    happened: threading.Event = field(default_factory=threading.Event)
    silent: bool = False

    def end(self, how: End) -> None:
        """In the loop: it ends now."""
        if how is End.SILENT:
            self.silent = True
        else:
            for writer in self.writers:
                _hang_up(writer, reset=how is End.RESET)
        self.happened.set()


class Proxy:
    """Listens at 127.0.0.1:`port` and passes on to `target`.

    Connections get the lines of `coming` first, one each, then `line`. While it is `refusing`, they are reset at once.
    """

    def __init__(self, target: int, address: str = "127.0.0.1") -> None:
        self._target = (address, target)
        self.line = WHOLE
        self.coming: list[Line] = []
        self.refusing = False
        self.refused = 0
        self.wires: list[Wire] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=PIECE))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def go_silent(self) -> None:
        """From now on nothing passes, on connections that are there and on those that come."""
        self.line = Line(end=End.SILENT)
        _loop().call_soon_threadsafe(lambda: [wire.end(End.SILENT) for wire in self.wires])

    def heal(self) -> None:
        """Connections that come are whole."""
        self.line, self.refusing = WHOLE, False
        self.coming.clear()

    def stop(self) -> None:
        self._do(self._stop())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, _loop()).result(30)

    async def _stop(self) -> None:
        self._server.close()
        for wire in self.wires:
            wire.end(End.RESET)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            self.refused += 1
            _hang_up(writer, reset=True)
            return
        line = self.coming.pop(0) if self.coming else self.line
        try:
            there, onward = await asyncio.open_connection(*self._target, limit=PIECE)
        except OSError:
            _hang_up(writer, reset=True)
            return
        wire = Wire(line, (writer, onward))
        self.wires.append(wire)
        if line.end and line.at == 0:
            wire.end(line.end)
        for way, source, sink in ((Way.UP, reader, onward), (Way.DOWN, there, writer)):
            task = asyncio.create_task(_pass_on(wire, way, source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pass_on(wire: Wire, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """One way of a connection: pieces go into a queue with the time at which they are due at the other end."""
    line = wire.line
    most = max(1, WAITING // PIECE if line.rate else 1024)
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(most)

    async def read() -> None:
        free = 0.0  # when the line has room for the next piece
        while True:
            piece = await _read(source)
            now = time.monotonic()
            free = max(free, now) + (len(piece) / line.rate if line.rate else 0.0)
            await on_the_way.put((free + line.delay_s, piece))
            if not piece:
                return

    reading = asyncio.create_task(read())
    try:
        while True:
            due, piece = await on_the_way.get()
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            if not await _deliver(wire, way, piece, sink):
                return
    finally:
        reading.cancel()


async def _deliver(wire: Wire, way: Way, piece: bytes, sink: asyncio.StreamWriter) -> bool:
    """Pass a piece on, up to the byte at which the line ends; whether more may come. An empty one is the sender's end,
    which a silent line keeps to itself."""
    if wire.silent or not piece:
        if not wire.silent:
            with contextlib.suppress(OSError):
                sink.write_eof()
        return bool(piece)
    ending = wire.line.end if way is wire.line.way else None
    if ending:
        piece = piece[: max(0, wire.line.at - wire.passed[way])]
    with contextlib.suppress(OSError):
        sink.write(piece)
        await sink.drain()
    wire.passed[way] += len(piece)
    if ending and wire.passed[way] >= wire.line.at:
        wire.end(ending)
    return True


async def _read(source: asyncio.StreamReader) -> bytes:
    try:
        return await source.read(PIECE)
    except OSError:
        return b""


def _hang_up(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        plain: socket.socket = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="proxies", daemon=True).start()
    return loop


@contextlib.contextmanager
def proxied(*targets: int) -> Iterator[list[Proxy]]:
    """A proxy before each port of 127.0.0.1."""
    proxies = [Proxy(port) for port in targets]
    try:
        yield proxies
    finally:
        for proxy in proxies:
            proxy.stop()
