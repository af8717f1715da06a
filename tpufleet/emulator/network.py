"""The way to a host: clear, slow, or cut. Faults change it while connections are open.

Bytes of a clear link pass through without being copied. Of a slow link they take their time (`kbps` is shared by
all connections of the host, each direction for itself; the delay is one-way). Of a cut link nothing arrives,
nothing is refused and nothing is lost: new connections get no answer at all, since the listening socket drops what
comes in, and open ones stall. When the cut ends, both go on, as TCP does after a partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

PIECE = 1024
HIGH_WATER = 64 * 1024  # above this much in flight the sender is held back, as by a full window
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # <asm-generic/socket.h>
RETURN_0 = struct.pack("HBBI", 0x06, 0, 0, 0)  # classic BPF, `ret #0`: keep nothing of a packet


@dataclass
class Direction:
    """One direction of a host's link: when it is free again for the next piece of any connection."""

    link: Link
    free_at: float = 0.0

    def due(self, size: int, arrived: float) -> float:
        """Books the link for `size` bytes that came at `arrived`; when their last one is through."""
        now = asyncio.get_running_loop().time()
        seconds = size * 8 / (self.link.kbps * 1000) if self.link.kbps else 0.0
        self.free_at = max(now, self.free_at) + seconds
        return max(self.free_at, arrived + self.link.delay_s)


class Link:
    """What lies between a host and the world; a change holds for open connections as well."""

    def __init__(self) -> None:
        self.kbps: float | None = None
        self.delay_s = 0.0
        self.is_cut = False
        self.inward = Direction(self)
        self.outward = Direction(self)
        self._changed = asyncio.Event()
        self._listening: socket.socket | None = None

    @property
    def is_clear(self) -> bool:
        return not self.is_cut and self.kbps is None and not self.delay_s

    def slow(self, kbps: float | None = None, delay_s: float = 0.0) -> None:
        """So many kilobits a second (None: as many as come) and so much delay; none of both: as fast as ever."""
        self.kbps, self.delay_s = kbps, delay_s
        self.inward.free_at = self.outward.free_at = 0.0
        self._tell()

    def cut(self, is_cut: bool) -> None:
        self.is_cut = is_cut
        if self._listening:
            _deafen(self._listening, is_cut)
        self._tell()

    def listens(self, listening: socket.socket | None) -> None:
        """The host's listening socket from now on; None: it has none."""
        self._listening = listening
        if listening and self.is_cut:
            _deafen(listening, True)

    async def until_changed(self, seconds: float | None) -> None:
        """Returns at the next change, or after `seconds`."""
        changed = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _deafen(listening: socket.socket, deaf: bool) -> None:
    """Lets the kernel drop every packet to `listening`, or no longer; needs no privilege."""
    if deaf:
        code = ctypes.create_string_buffer(RETURN_0)
        program = struct.pack("HL", 1, ctypes.addressof(code))  # struct sock_fprog
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    else:
        listening.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


class Lane:
    """One direction of one connection: hands on what it is given, in order, when the link lets it through."""

    def __init__(
        self, direction: Direction, hand_on: Callable[[bytes], None], hold: Callable[[], None], go: Callable[[], None]
    ) -> None:
        """`hold` and `go` keep the giver back and let it go on."""
        self._direction = direction
        self._hand_on = hand_on
        self._hold = hold
        self._go = go
        self._waiting: deque[tuple[float, int, Callable[[], object]]] = deque()  # arrival, size, what is then done
        self._size = 0
        self._pump: asyncio.Task[None] | None = None

    def push(self, data: bytes) -> None:
        if self._is_open:
            self._hand_on(data)
            return
        now = asyncio.get_running_loop().time()
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self._waiting.append((now, len(piece), partial(self._hand_on, piece)))
        if self._size <= HIGH_WATER < self._size + len(data):
            self._hold()
        self._size += len(data)
        self._work()

    def end(self, at_end: Callable[[], object]) -> None:
        """Calls `at_end` behind everything that was given."""
        if self._is_open:
            at_end()
        else:
            self._waiting.append((0.0, 0, at_end))
            self._work()

    def drop(self) -> None:
        """The connection is no more."""
        self._waiting.clear()
        if self._pump:
            self._pump.cancel()

    @property
    def _is_open(self) -> bool:
        return self._pump is None and self._direction.link.is_clear

    def _work(self) -> None:
        if self._pump is None:
            self._pump = asyncio.create_task(self._hand_all_on())

    async def _hand_all_on(self) -> None:
        while self._waiting:
            arrived, size, act = self._waiting.popleft()
            await self._passage(size, arrived)
            act()
            if self._size > HIGH_WATER >= self._size - size:
                self._go()
            self._size -= size
        self._pump = None

    async def _passage(self, size: int, arrived: float) -> None:
        """Returns when `size` bytes have made their way, whatever becomes of the link meanwhile."""
        link, loop = self._direction.link, asyncio.get_running_loop()
        while not link.is_clear:
            if link.is_cut:
                await link.until_changed(None)
                continue
            due = self._direction.due(size, arrived)
            await link.until_changed(due - loop.time())
            if loop.time() >= due:
                return


class Gate(asyncio.Protocol):
    """Stands between a connection's transport and the protocol that serves it."""

    def __init__(self, link: Link, inner: asyncio.Protocol) -> None:
        self._link = link
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        outer = cast(asyncio.Transport, transport)
        self._inward = Lane(self._link.inward, self._inner.data_received, outer.pause_reading, outer.resume_reading)
        self._outward = Lane(self._link.outward, outer.write, _nothing, _nothing)
        self._inner.connection_made(_Outward(outer, self._outward))

    def data_received(self, data: bytes) -> None:
        self._inward.push(data)

    def eof_received(self) -> bool:
        """Keeps the transport open: the protocol says when to close, once everything has come through."""
        self._inward.end(self._inner.eof_received)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._inward.drop()
        self._outward.drop()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _Outward(asyncio.Transport):
    """A transport whose writes go through a lane; SSH's windows bound what waits there."""

    def __init__(self, outer: asyncio.Transport, lane: Lane) -> None:
        super().__init__()
        self._outer = outer
        self._lane = lane

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._lane.push(bytes(data))

    def close(self) -> None:
        self._lane.end(self._outer.close)

    def abort(self) -> None:
        self._outer.abort()

    def is_closing(self) -> bool:
        return self._outer.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._outer.get_extra_info(name, default)


def _nothing() -> None:
    pass
