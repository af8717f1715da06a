"""The board's server: listens, runs the threads behind the pages, and ends all of it together."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Generator
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tpufleet.errors import UsageError

AT_ONCE = 300  # connections; a full room has a few each
SPARE = 100  # more, for those that are on their way out
GRACE_S = 2
VANISHED_S = 60


def listen(host: str, port: int) -> socket.socket:
    """A socket there; raises UsageError when that can't be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            listening.listen(AT_ONCE)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        hint = "tpufleet board --listen 127.0.0.1:0 takes any free port"
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror or error}", hint=hint) from error
    return listening


class Roomy(H11Protocol):
    """Makes room when all connections are taken: the oldest goes of those whose request isn't here, or not wholly.

    So whoever opens many and says nothing, or says it slowly, keeps nobody out.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        _give_up_on_who_vanished(transport)
        if len(self.connections) < AT_ONCE:
            return
        others = cast("set[Roomy]", self.connections) - {self}
        awaited = [other for other in others if other.is_awaited()]
        if awaited:
            min(awaited, key=lambda other: other.since).transport.abort()

    def is_awaited(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()


def _give_up_on_who_vanished(transport: asyncio.Transport) -> None:
    """Let the kernel end a connection whose other end acknowledges nothing: a laptop that was closed, say. (It would
    take a quarter of an hour by itself; macOS has no such option.)"""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):  # it may be gone already
            connection: socket.socket = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, VANISHED_S * 1000)


@contextlib.contextmanager
def serving(
    app: ASGIApp, listening: socket.socket, ended: threading.Event, closing: Callable[[], None]
) -> Generator[None]:
    """Serve `app` in a thread until the context is left; `ended` is set when it ends.

    `closing` is called before: it ends answers that would go on for ever.
    """
    config = uvicorn.Config(
        app,
        http=Roomy,
        ws="none",
        log_config=None,
        log_level="error",  # what strangers send is no news for the host's terminal
        access_log=False,  # addresses of pages are secrets here
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        limit_concurrency=AT_ONCE + SPARE,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = uvicorn.Server(config)

    def run() -> None:
        try:
            server.run(sockets=[listening])
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="board", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing()
        server.should_exit = True
        thread.join(GRACE_S + 3)
        listening.close()
