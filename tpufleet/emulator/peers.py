"""Who is at the other end of a loopback connection.

Loopback is open to every user of a machine, and whoever can create a node can run programs as the person who
started the emulator. So the API answers that person (and root) only, and no web page in their browser.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

TABLE = Path("/proc/net/tcp")


def is_ours(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether the connection's client is this process's user or root; yes too where the kernel doesn't tell."""
    owner = owner_of(TABLE, client, server)
    return owner is None or owner in (0, os.geteuid())


def owner_of(table: Path, client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user id of the client's socket in `table` (laid out as /proc/net/tcp), or None if it isn't there."""
    wanted = (_hex(client), _hex(server))
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if (fields[1], fields[2]) == wanted:
            return int(fields[7])
    return None


def _hex(end: tuple[str, int]) -> str:
    """`0100007F:1F90`: the address in the machine's byte order, the port in the network's."""
    address, port = end
    return f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{port:04X}"
