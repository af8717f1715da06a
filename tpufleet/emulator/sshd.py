"""The SSH server of one emulated host (asyncssh): public keys only, no forwarding of anything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

import asyncssh

from tpufleet.emulator.commands import Machine
from tpufleet.emulator.network import Gate, Link
from tpufleet.emulator.sessions import Session

Connections = set[asyncssh.SSHServerConnection]


class House(Machine, Protocol):
    """What the server needs of its host besides."""

    def keys(self, user: str) -> set[bytes]:
        """The public keys with which `user` may log in now."""
        ...

    def enter(self, user: str, cut: Callable[[], None]) -> Callable[[], None]:
        """`user` has logged in, and is to be cut off by `cut`; to call what is returned when they are gone."""
        ...


class SshServer:
    """Listens from `open` to `close`."""

    def __init__(self, machine: House, link: Link) -> None:
        self._machine = machine
        self._link = link
        self._connections: Connections = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def open(self, listening: socket.socket, host_key: asyncssh.SSHKey) -> None:
        self._acceptor = await asyncssh.create_server(
            lambda: _Door(self._machine, self._connections),
            tunnel=_Entrance(listening, self._link),
            server_host_keys=[host_key],
            encoding=None,
            line_editor=False,
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
        )
        self._link.listens(listening)

    def change_key(self, host_key: asyncssh.SSHKey) -> None:
        """New connections are answered with `host_key`; open ones go on."""
        if self._acceptor:
            self._acceptor.update(server_host_keys=[host_key])

    async def close(self) -> None:
        """Stops listening and cuts every connection, as a machine does that goes down."""
        if self._acceptor:
            self._link.listens(None)
            self._acceptor.close()
            await self._acceptor.wait_closed()
            self._acceptor = None
        for connection in list(self._connections):
            connection.abort()


class _Entrance:
    """Puts a gate before every connection that is accepted; what asyncssh knows as the way in through a tunnel."""

    def __init__(self, listening: socket.socket, link: Link) -> None:
        self._listening = listening
        self._link = link

    async def create_server(
        self, factory: Callable[[str, int], asyncio.Protocol], listen_host: str, listen_port: int
    ) -> asyncio.Server:
        del listen_host, listen_port  # the socket knows
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Gate(self._link, factory("", 0)), sock=self._listening)


class _Door(asyncssh.SSHServer):
    """One connection."""

    def __init__(self, machine: House, connections: Connections) -> None:
        self._machine = machine
        self._connections = connections
        self._key = b""
        self._leave: Callable[[], None] | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connections.discard(self._connection)
        if self._leave:
            self._leave()

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self._key = key.public_data
        return self._key in self._machine.keys(username)

    def auth_completed(self) -> None:
        self._leave = self._machine.enter(self._user(), self._cut)
        # Whose key was taken away between the two is told so now, or else by the end of what `enter` started.
        if self._key not in self._machine.keys(self._user()):
            self._cut()

    def session_requested(self) -> Session:
        return Session(self._machine, self._user())

    def _user(self) -> str:
        return str(self._connection.get_extra_info("username"))

    def _cut(self) -> None:
        if self._connection in self._connections:
            self._connection.abort()
