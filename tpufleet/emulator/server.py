"""The daemon's life: takes its directory, brings the nodes back, serves until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import os
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

import tpufleet
from tpufleet.emulator import addresses, api, control, peers, processes, workstation
from tpufleet.emulator.clock import WallClock, rfc3339
from tpufleet.emulator.faults import Faults
from tpufleet.emulator.hosts import NAMESPACE, Host, Place, ProcessHost, Settings, View
from tpufleet.emulator.interference import Interfered, Interference
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.store import Store
from tpufleet.emulator.wire import ApiError, Json, not_found
from tpufleet.errors import StateError

if TYPE_CHECKING:
    from tpufleet.emulator.namespace import NamespaceHost

log = logging.getLogger(__name__)

LOG_BYTES = 2_000_000

Sessions = dict[int, subprocess.Popen[bytes]]


def run(directory: Path, settings: Settings, ready: Callable[[], None], with_process: int | None = None) -> None:
    """Serves from `directory` until SIGTERM, SIGINT, the API's stop, or the end of the process `with_process`.

    `ready` is called when others may come.

    Raises StateError when the directory is another's or unreadable, OSError when nothing can be listened on.
    """
    store = Store(directory)
    try:
        store.withdraw()
        _log_to(store.log)
        asyncio.run(_serve(store, settings, ready, with_process))
    finally:
        store.withdraw()
        store.release()


async def _serve(store: Store, settings: Settings, ready: Callable[[], None], with_process: int | None) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    if with_process is not None:
        loop.add_reader(os.pidfd_open(with_process), stopped.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # sessions inherit it, and `nohup` had it ignored
    processes.become_subreaper()
    listening = addresses.listen("127.0.0.1", 0)
    settings.api_url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    keeper, sessions = _keeper(store, settings)
    loop.add_signal_handler(signal.SIGCHLD, lambda: processes.reap_orphans(sessions))
    await keeper.resume()

    facts = _facts(settings.api_url, keeper)
    connections = Connections()
    served = app(keeper, facts, stopped.set, connections.cut)
    server = connections.server = _Server(uvicorn.Config(served, http=H11Protocol, log_config=None, access_log=False))
    serving = asyncio.create_task(server.serve([listening]))
    serving.add_done_callback(lambda _: stopped.set())
    store.announce(facts)
    log.info("serving at %s", facts["url"])
    ready()

    await stopped.wait()
    store.withdraw()
    server.should_exit = True
    await serving
    await keeper.shut_down()
    processes.kill(processes.children())
    log.info("stopped")


def _keeper(store: Store, settings: Settings) -> tuple[Keeper, Sessions]:
    """The keeper, and the daemon's children that somebody waits for. Raises StateError without the means for hosts."""
    sessions: Sessions = {}
    kind = _kind_of_hosts(store, settings)

    def make(place: Place, view: View) -> Host:
        return kind(place, settings, view, sessions)

    return Keeper(store, WallClock(), settings, addresses.usable_port(store.directory), make), sessions


def _kind_of_hosts(store: Store, settings: Settings) -> type[ProcessHost] | type[NamespaceHost]:
    if settings.hosts != NAMESPACE:
        return ProcessHost
    from tpufleet.emulator.namespace import NamespaceHost, why_not

    if reason := why_not(store.directory):
        raise StateError(reason, hint="cloud.emulator.hosts: process needs neither")
    return NamespaceHost


def _facts(url: str, keeper: Keeper) -> Json:
    return {
        "schema": 1,
        "pid": os.getpid(),
        "url": url,
        "ssh_port": keeper.ssh_port,
        "hosts": keeper.settings.hosts,
        "started": rfc3339(keeper.clock.now()),
        "version": tpufleet.__version__,
    }


def app(keeper: Keeper, facts: Json, stop: Callable[[], None], cut: Callable[[tuple[str, int]], None]) -> ASGIApp:
    """Everything that is served over HTTP; `cut` ends the connection of a client."""
    interference = Interference()
    ours = api.routes(keeper)
    faults = Faults(keeper, interference, {route.name for route in ours})
    application = Starlette(
        routes=[*ours, *control.routes(keeper, faults, facts, stop), *workstation.routes()],
        exception_handlers={
            ApiError: _refused,
            404: _no_such_method,
            405: _no_such_method,
            Exception: _broken,
        },
    )
    return OwnerOnly(
        Interfered(application, ours, interference, clock=keeper.clock, called=keeper.book.called, cut=cut)
    )


async def _refused(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, ApiError)  # noqa: S101 - the only type it is registered for
    return JSONResponse(error.envelope(), error.http_status)


async def _broken(request: Request, error: Exception) -> JSONResponse:
    """A bug of the emulator; Starlette raises the error again, for the log."""
    return await _refused(request, ApiError("INTERNAL", f"Internal error: {error!r}"))


async def _no_such_method(request: Request, error: Exception) -> JSONResponse:
    del error
    return await _refused(request, not_found(request.url.path))


class OwnerOnly:
    """Lets through what comes from the emulator's own user and not from a web page."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name for name, _ in scope["headers"]}
        if b"origin" in headers or not peers.is_ours(tuple(scope["client"]), tuple(scope["server"])):
            error = ApiError("PERMISSION_DENIED", "The rehearsal cloud answers the user who started it only.")
            await JSONResponse(error.envelope(), error.http_status)(scope, receive, send)
            return
        await self._inner(scope, receive, send)


class Connections:
    """The open connections to the API, found by their client's address and port."""

    server: uvicorn.Server

    def cut(self, client: tuple[str, int]) -> None:
        """Closes the connection of `client` without a word."""
        for connection in self.server.server_state.connections:
            if isinstance(connection, H11Protocol) and connection.client == client:
                connection.transport.abort()


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handlers: a stop has to end the hosts as well."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _log_to(path: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1)
    logging.basicConfig(
        handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    asyncssh.set_log_level(logging.WARNING)
