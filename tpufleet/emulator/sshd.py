"""The SSH server of one emulated host (asyncssh): public keys only, no forwarding of anything."""

from __future__ import annotations

import socket
from collections.abc import Callable

import asyncssh

from tpufleet.emulator.commands import Machine
from tpufleet.emulator.sessions import Session

Connections = set[asyncssh.SSHServerConnection]


class SshServer:
    """Listens from `open` to `close`; `keys_of` says, at each login, which keys a user has."""

    def __init__(self, machine: Machine, keys_of: Callable[[str], set[bytes]]) -> None:
        self._machine = machine
        self._keys_of = keys_of
        self._connections: Connections = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def open(self, listening: socket.socket, host_key: asyncssh.SSHKey) -> None:
        self._acceptor = await asyncssh.create_server(
            lambda: _Door(self._machine, self._keys_of, self._connections),
            sock=listening,
            server_host_keys=[host_key],
            encoding=None,
            line_editor=False,
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
        )

    async def close(self) -> None:
        """Stops listening and cuts every connection, as a machine does that goes down."""
        if self._acceptor:
            self._acceptor.close()
            await self._acceptor.wait_closed()
            self._acceptor = None
        for connection in list(self._connections):
            connection.abort()


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
