"""The connections of one command: one per host, made when first asked for, closed together.

paramiko costs a third of a second to import, so it is imported with the first connection.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tpufleet.errors import HostKeyMismatch
from tpufleet.model import Host
from tpufleet.ssh.access import Access
from tpufleet.ssh.jump import AT_ONCE
from tpufleet.ssh.limits import DEFAULT, Limits
from tpufleet.ssh.trust import Trust

if TYPE_CHECKING:
    import paramiko

    from tpufleet.ssh.connection import ParamikoConnection
    from tpufleet.ssh.identity import Identity

PAUSES_S = (0.1, 1.0)  # the first and the longest between tries, each up to half more by chance


class ParamikoDialer:
    """Implements `port.Dialer`, for any number of threads. Leaving its context closes all connections."""

    def __init__(self, access: Access, trust: Trust, *, limits: Limits = DEFAULT) -> None:
        self._access = access
        self._trust = trust
        self._limits = limits
        self._lock = threading.Lock()
        self._identity: Identity | None = None
        self._jumping = threading.BoundedSemaphore(AT_ONCE) if access.jump else contextlib.nullcontext()
        self._dialling: dict[str, threading.Lock] = {}
        self._connections: dict[str, ParamikoConnection] = {}

    def connect(self, host: Host) -> ParamikoConnection:
        """The connection to `host`; made anew when the one there was is dead. Raises as `port.Dialer` says."""
        place = f"{host.identity} {host.address}:{host.port}"
        with self._lock:
            turn = self._dialling.setdefault(place, threading.Lock())
        with turn:
            there = self._connections.get(place)
            if there is None or not there.alive:
                self._connections[place] = there = self._dial(host)
            return there

    def close_all(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_all()

    def _dial(self, host: Host) -> ParamikoConnection:
        from tpufleet.ssh.handshake import TurnedAway, connect

        pinned = self._trust.get(host.identity)
        if pinned is None:
            raise HostKeyMismatch("its host key is not known yet", where=host.name, hint="tpufleet create")
        with self._jumping, self._signing() as key:
            deadline = time.monotonic() + self._limits.connect_s
            pause, longest = PAUSES_S
            while True:
                try:
                    return connect(host, self._access, key, pinned, limits=self._limits, deadline=deadline)
                except TurnedAway:
                    nap = pause * random.uniform(1.0, 1.5)  # noqa: S311 - jitter, no secret
                    if time.monotonic() + nap >= deadline:
                        raise
                    time.sleep(nap)
                    pause = min(2 * pause, longest)

    def _signing(self) -> AbstractContextManager[paramiko.PKey]:
        from tpufleet.ssh.identity import Identity

        with self._lock:
            if self._identity is None:
                self._identity = Identity(self._access)
            return self._identity.signing()
