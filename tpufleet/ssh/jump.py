"""Through a jump host: the person's own `ssh` carries the bytes of each connection (`ssh -W`).

So whatever lets that person in there counts: their ~/.ssh/config with its names, keys, agents, known hosts. It may
not ask anything (BatchMode), since many of them run at once and without a terminal.
"""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO

from tpufleet.errors import AccessRefused, HostError, Unreachable, UsageError
from tpufleet.model import Host
from tpufleet.ssh.wire import LiveSocket
from tpufleet.text import clean_bytes

AT_ONCE = 8  # handshakes with one jump host: sshd drops some beyond ten (MaxStartups)
END_S = 2.0
LONGEST = 1 << 16

# OpenSSH 9.2's own words on stderr.
NOT_LET_IN = re.compile(r"Permission denied|Host key verification failed|host key is known|authentication failures")
TURNED_AWAY = re.compile(r"^(?:kex_exchange_identification|ssh_exchange_identification|Connection (?:closed|reset))")
NO_WAY_ON = "stdio forwarding failed"  # the last words when the jump host can't reach the host


class JumpSocket(LiveSocket):
    """A socket whose other end is an `ssh` process, which ends with it; `words` is then what ssh said, line by line."""

    words: tuple[str, ...] = ()

    def carry(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self._process, self._said = process, said
        self._ending = threading.Lock()
        self.heard = time.monotonic()

    def close(self) -> None:
        super().close()
        with self._ending:
            if not self._said.closed:
                self._end()
                self._said.seek(0)
                lines = clean_bytes(self._said.read(LONGEST), keep_newlines=True).splitlines()
                self.words = tuple(line.strip()[:300] for line in lines if line.strip())
                self._said.close()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def through(jump: str, host: Host, deadline: float) -> JumpSocket:
    """A socket to `host` by way of `jump`; whether there is a connection shows with the first bytes."""
    ours, theirs = socket.socketpair()
    said = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the socket
    try:
        process = subprocess.Popen(
            _command(jump, host, deadline),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=said,
            start_new_session=True,  # Ctrl-C is ours to deal with: what goes on is asked over this connection
        )
    except OSError as error:
        ours.close()
        said.close()
        raise UsageError(f"ssh can't be started: {error.strerror}", hint="install OpenSSH's client") from error
    finally:
        theirs.close()
    wire = JumpSocket(fileno=ours.detach())
    wire.carry(process, said)
    return wire


def destination(jump: str) -> str:
    """`me@bastion:2222` as ssh's own destination, which has a port in an address (ssh://) only."""
    return f"ssh://{jump}" if ":" in jump else jump


def why_not(words: Sequence[str], jump: str, host: Host) -> HostError | None:
    """What ssh's `words` mean for `host`, when the connection came to nothing; None when there are none."""
    if not words:
        return None
    last = words[-1]
    hint = f"try: ssh -o BatchMode=yes {destination(jump)} true"
    if NOT_LET_IN.search(last):
        return AccessRefused(f"the jump host {jump} lets nobody through: {last}", where=host.name, hint=hint)
    if last == NO_WAY_ON:
        return Unreachable(f"the jump host {jump} can't reach {host.address}:{host.port}", where=host.name)
    return Unreachable(f"no way through the jump host {jump}: {last}", where=host.name, hint=hint)


def turned_away(words: Sequence[str]) -> bool:
    """Whether the jump host hung up before it knew who came, as a busy sshd does."""
    return any(TURNED_AWAY.match(line) for line in words)


def _command(jump: str, host: Host, deadline: float) -> list[str]:
    left = max(1, round(deadline - time.monotonic()))
    # at LogLevel INFO the jump host's own greeting would be among the words
    options = {"BatchMode": "yes", "ConnectTimeout": str(left), "LogLevel": "ERROR", "PermitLocalCommand": "no"}
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", *words, "-W", f"[{host.address}]:{host.port}", "--", destination(jump)]
