"""Loopback addresses for hosts: node N's worker M listens on 127.77.N.(M + 1), all on one port."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import socket
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from tpufleet.emulator.wire import ApiError

PORTS = (22, 2222, 2022, 22022)
MOST_HOSTS = 254


def numbers(directory: Path) -> Iterator[int]:
    """All node numbers, from a start that is the directory's own, so that two emulators rarely meet."""
    first = int.from_bytes(hashlib.sha256(bytes(directory)).digest()[:2])
    return (1 + (first + step) % 254 for step in range(254))


def usable_port(directory: Path) -> int:
    """The first of PORTS that this process may listen on: 22 needs a privilege, and no server of another's."""
    for port in PORTS:
        for number in numbers(directory):
            try:
                listen(f"127.77.{number}.{MOST_HOSTS}", port).close()
            except PermissionError:
                break
            except OSError:
                continue
            return port
    raise OSError(errno.EADDRINUSE, "no port is free for SSH servers on 127.77.0.0/16")


def claim(directory: Path, hosts: int, port: int, owned: Container[int] = ()) -> tuple[int, list[socket.socket]]:
    """A node number that no node has (`owned`) with all its hosts' addresses free, and the sockets that hold them.

    Raises ApiError when there is none.
    """
    if hosts <= MOST_HOSTS:
        for number in numbers(directory):
            if number not in owned and (sockets := claim_number(number, hosts, port)):
                return number, sockets
    raise ApiError("RESOURCE_EXHAUSTED", "The rehearsal cloud has no loopback addresses left for this node.")


def another(number: int, hosts: int, taken: Iterable[str], port: int) -> tuple[str, socket.socket]:
    """An address of node `number` besides those of its `hosts` and those `taken`, and its socket; raises ApiError."""
    for host in range(MOST_HOSTS - 1, hosts, -1):
        address = f"127.77.{number}.{host}"
        if address not in taken:
            with contextlib.suppress(OSError):
                return address, listen(address, port)
    raise ApiError("RESOURCE_EXHAUSTED", "The rehearsal cloud has no other loopback address for this host.")


def claim_number(number: int, hosts: int, port: int) -> list[socket.socket]:
    """The sockets of node `number`, or none when an address is taken."""
    sockets: list[socket.socket] = []
    try:
        sockets.extend(listen(f"127.77.{number}.{host}", port) for host in range(1, hosts + 1))
    except OSError:
        for one in sockets:
            one.close()
        return []
    return sockets


def listen(address: str, port: int) -> socket.socket:
    """A listening socket; raises OSError. It listens at once, as two sockets may be bound but not listen alike."""
    # the protocol is named because asyncio sets TCP_NODELAY only on sockets that say that they are TCP
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made
