"""From an address to an authenticated connection: the algorithms, the pinned host key, the operator's key.

Only lists of what is offered, so what is weak (CBC, 3DES, SHA-1, MD5) or unknown is never agreed on.
"""

from __future__ import annotations

import logging
import socket
import threading
import time

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from tpufleet.errors import AccessRefused, HostError, HostFault, HostKeyMismatch, Unreachable
from tpufleet.model import Host
from tpufleet.publickey import PublicKeyLine, fingerprint, signature_algorithms
from tpufleet.ssh.access import Access
from tpufleet.ssh.connection import ParamikoConnection
from tpufleet.ssh.jump import JumpSocket, through, turned_away, why_not
from tpufleet.ssh.limits import Limits
from tpufleet.ssh.transport import OrderlyTransport
from tpufleet.ssh.wire import LiveSocket
from tpufleet.text import clean

# aes128-gcm is the fastest by far for bulk, curve25519 costs a tenth of the newer hybrid exchanges (measured).
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
EXCHANGES = ("curve25519-sha256@libssh.org", "ecdh-sha2-nistp256", "ecdh-sha2-nistp384")

WINDOW = 2 << 20  # larger windows multiply sshd's CPU time (measured)

# Every failure is raised as one sentence; paramiko's own log of tracebacks would only repeat it on stderr.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class TurnedAway(Unreachable):
    """The server hung up before or while the connection was made, as sshd does when it has too many (MaxStartups)."""


def connect(
    host: Host, access: Access, key: paramiko.PKey, pinned: PublicKeyLine, *, limits: Limits, deadline: float
) -> ParamikoConnection:
    """A connection to the machine that holds the `pinned` key, entered with `key`, made before `deadline` (monotonic).

    Raises TurnedAway (try again), Unreachable, HostKeyMismatch, AccessRefused; HostFault when what answers there is
    no SSH server that can be talked to.
    """
    wire = through(access.jump, host, deadline) if access.jump else _tcp(host, deadline)
    try:
        transport = _transport(wire, pinned)
    except BaseException:
        wire.close()
        raise
    try:
        _exchange_keys(host, access, transport, pinned, deadline)
        _authenticate(host, access, transport, key, deadline)
        return ParamikoConnection(host, transport, wire, limits)
    except Unreachable as error:
        transport.close()
        if isinstance(wire, JumpSocket) and access.jump:
            raise _on_the_way(host, access.jump, wire, error) from error
        raise
    except BaseException:
        transport.close()
        raise


def _on_the_way(host: Host, jump: str, wire: JumpSocket, error: Unreachable) -> HostError:
    """The failure as the jump host's, where it was that."""
    wire.close()
    if turned_away(wire.words):
        return TurnedAway(f"the jump host {jump} hung up while the connection was made", where=host.name)
    return why_not(wire.words, jump, host) or error


def _tcp(host: Host, deadline: float) -> LiveSocket:
    where = host.name
    try:
        plain = socket.create_connection((host.address, host.port), timeout=_left(deadline))
    except ConnectionRefusedError as error:
        raise Unreachable(f"nothing listens at {_place(host)}", where=where, hint="tpufleet status") from error
    except TimeoutError as error:
        raise Unreachable(f"no answer from {_place(host)}", where=where, hint="tpufleet status") from error
    except OSError as error:
        raise Unreachable(
            f"{_place(host)} can't be reached: {error.strerror or error}", where=where, hint="tpufleet status"
        ) from error
    wire = LiveSocket(fileno=plain.detach())
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.heard = time.monotonic()
    return wire


def _transport(wire: LiveSocket, pinned: PublicKeyLine) -> OrderlyTransport:
    transport = OrderlyTransport(wire, WINDOW)
    offered = transport.get_security_options()
    offered.ciphers = CIPHERS
    offered.digests = MACS
    offered.kex = EXCHANGES
    offered.key_types = signature_algorithms(pinned)  # nothing else: a server's preference for another can't matter
    return transport


def _exchange_keys(
    host: Host, access: Access, transport: paramiko.Transport, pinned: PublicKeyLine, deadline: float
) -> None:
    done = threading.Event()
    transport.banner_timeout = transport.handshake_timeout = _left(deadline)
    transport.start_client(event=done)
    done.wait(_left(deadline))
    if not done.is_set() or not transport.is_active():
        error = transport.get_exception()
        if isinstance(error, IncompatiblePeer) and "host key" in str(error):
            raise _mismatch(host, access, f"it has no {pinned.kind} host key")
        raise _failure(host, error, deadline)
    offered = transport.get_remote_server_key().asbytes()
    if offered != pinned.blob:
        raise _mismatch(host, access, f"it has {fingerprint(offered)}, pinned is {fingerprint(pinned)}")


def _authenticate(
    host: Host, access: Access, transport: paramiko.Transport, key: paramiko.PKey, deadline: float
) -> None:
    transport.auth_timeout = _left(deadline)
    try:
        if transport.auth_publickey(access.login(host), key):  # there are further factors to present
            raise _refused(host, access)
    except (OSError, EOFError, paramiko.SSHException) as error:
        if isinstance(error, paramiko.AuthenticationException) and transport.is_active() and _left(deadline) > 0.01:
            raise _refused(host, access) from error
        raise _failure(host, None, deadline) from error


def _refused(host: Host, access: Access) -> AccessRefused:
    key = f"the key {access.key}" if access.own_key else "the fleet's key"
    return AccessRefused(
        f"does not accept {key} for {access.login(host)}",
        where=host.name,
        hint=f"`user` in cloud.hosts and ssh.key in the fleet file say whose key it is; try: {access.attempt(host)}"
        if access.given
        else f"keys are given when a node is made: tpufleet delete {host.node}, then tpufleet create",
    )


def _failure(host: Host, error: Exception | None, deadline: float) -> HostError:
    """What it means that a connection came to nothing with `error` (None: the server hung up, or nothing came)."""
    said = str(error or "")
    if isinstance(error, IncompatiblePeer):
        return HostFault(f"its SSH server agrees on no algorithm: {clean(said)}", kind="ssh", where=host.name)
    if time.monotonic() >= deadline - 0.05:
        return Unreachable(f"{_place(host)} took the connection but doesn't go on", where=host.name)
    if isinstance(error, paramiko.SSHException) and "protocol banner" not in said:
        return HostFault(f"what answers at {_place(host)} is no SSH server: {clean(said)}", kind="ssh", where=host.name)
    return TurnedAway(f"{_place(host)} hung up while the connection was made", where=host.name)


def _mismatch(host: Host, access: Access, how: str) -> HostKeyMismatch:
    mend = (
        f"write its new key as host_key of {host.node} into the fleet file"
        if access.given
        else f"tpufleet delete {host.node} and create"
    )
    return HostKeyMismatch(
        f"another machine answers at {_place(host)} than the one that was {'known' if access.given else 'made'}: {how}",
        where=host.name,
        hint=f"nothing was sent to it; if the machine was changed on purpose, {mend}",
    )


def _place(host: Host) -> str:
    return f"{host.address}:{host.port}"


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
