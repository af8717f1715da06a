"""The SSH server of one emulated host (asyncssh): public keys only, no forwarding of anything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import asyncssh

from tpufleet.emulator.commands import Machine
from tpufleet.emulator.network import Gate, Link
from tpufleet.emulator.sessions import Session

Connections = set[asyncssh.SSHServerConnection]


class SshServer:
    """Listens from `open` to `close`; `keys_of` says, at each login, which keys a user has."""

    def __init__(self, machine: Machine, keys_of: Callable[[str], set[bytes]], link: Link) -> None:
        self._machine = machine
        self._keys_of = keys_of
        self._link = link
        self._connections: Connections = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def open(self, listening: socket.socket, host_key: asyncssh.SSHKey) -> None:
        self._acceptor = await asyncssh.create_server(
            lambda: _Door(self._machine, self._keys_of, self._connections),
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

    def __init__(self, machine: Machine, keys_of: Callable[[str], set[bytes]], connections: Connections) -> None:
        self._machine = machine
        self._keys_of = keys_of
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connections.discard(self._connection)

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key.public_data in self._keys_of(username)

    def session_requested(self) -> Session:
        return Session(self._machine, self._connection.get_extra_info("username"))
