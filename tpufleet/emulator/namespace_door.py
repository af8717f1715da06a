"""The way into a namespace host: connections to its address pass the gate that faults act on, then reach its sshd.

Nothing holds a fast sender back here, since SSH's own windows bound what is on its way (as in `network.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import cast

from tpufleet.emulator.network import Gate, Link

AGAIN_S = 0.01
PATIENCE_S = 5  # sshd listens anew when it gets another host key


class Door:
    """Listens from `open` to `close`; `entered` is told of each connection."""

    def __init__(self, link: Link, entered: Callable[[], None]) -> None:
        self._link = link
        self._entered = entered
        self._server: asyncio.Server | None = None
        self._passages: set[_Passage] = set()

    async def open(self, listening: socket.socket, sshd: tuple[str, int]) -> None:
        def enter() -> Gate:
            self._entered()
            return Gate(self._link, _Passage(sshd, self._passages))

        self._server = await asyncio.get_running_loop().create_server(enter, sock=listening)
        self._link.listens(listening)

    def close(self) -> None:
        """Stops listening and cuts every connection, as a machine does that goes down."""
        if self._server:
            self._link.listens(None)
            self._server.close()
            self._server = None
        for passage in list(self._passages):
            passage.cut()


class _Passage(asyncio.Protocol):
    """One connection: what comes from the gate goes to sshd, and what sshd says goes back."""

    def __init__(self, sshd: tuple[str, int], passages: set[_Passage]) -> None:
        self._sshd = sshd
        self._passages = passages
        self._inner: asyncio.Transport | None = None
        self._early: list[bytes | None] = []  # what came before sshd was reached; None is the end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outer = cast(asyncio.Transport, transport)
        self._passages.add(self)
        self._reaching = asyncio.create_task(self._reach())

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while loop.time() < deadline:
            with contextlib.suppress(OSError):
                self._inner, _ = await loop.create_connection(lambda: _Back(self._outer), *self._sshd)
                for data in self._early:
                    self._pass(data)
                return
            await asyncio.sleep(AGAIN_S)
        self._outer.abort()

    def data_received(self, data: bytes) -> None:
        self._pass(data)

    def eof_received(self) -> bool:
        self._pass(None)
        return True

    def _pass(self, data: bytes | None) -> None:
        if self._inner is None:
            self._early.append(data)
        elif data is None:
            self._inner.write_eof()
        else:
            self._inner.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._passages.discard(self)
        self._reaching.cancel()
        if self._inner:
            self._inner.close()

    def cut(self) -> None:
        self._reaching.cancel()
        if self._inner:
            self._inner.abort()
        self._outer.abort()


class _Back(asyncio.Protocol):
    """What sshd says."""

    def __init__(self, outer: asyncio.Transport) -> None:
        self._outer = outer

    def data_received(self, data: bytes) -> None:
        self._outer.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._outer.close()
