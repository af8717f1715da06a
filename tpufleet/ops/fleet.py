"""The fleet at hand: everything an operation works with, made once per command and passed along."""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tpufleet.cloud.port import Cloud
from tpufleet.errors import HostFault, PartialFailure
from tpufleet.model import Event, Host, Provider, Spec
from tpufleet.paths import LocalPaths
from tpufleet.ssh.agent import Agent
from tpufleet.ssh.fanout import Outcome
from tpufleet.ssh.port import Connection, Dialer
from tpufleet.ssh.trust import Trust
from tpufleet.state.store import Journal

V = TypeVar("V")


@dataclass
class Fleet:
    """`emit` is told what happens, from any thread, one event at a time. With `dry_run` no host is written to."""

    spec: Spec
    paths: LocalPaths
    cloud: Cloud
    dialer: Dialer
    trust: Trust
    journal: Journal
    command: str
    emit: Callable[[Event], None]
    dry_run: bool = False
    _speaking: threading.Lock = field(default_factory=threading.Lock)
    _pinning: defaultdict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    @functools.cached_property
    def zones(self) -> tuple[str, ...]:
        """The zones of the file, and those where the journal knows of nodes: a zone may have left the file."""
        named = self.spec.cloud.zones
        elsewhere = self.journal.zones() if self.spec.cloud.provider is not Provider.INVENTORY else ()
        return (*named, *(zone for zone in elsewhere if zone not in named))

    def say(self, subject: str, text: str, state: str = "info") -> None:
        """Tell the person that `text` is so for `subject` (a node, a host, a run)."""
        with self._speaking:
            self.emit(Event(subject, text, state))

    def pin(self, host: Host) -> None:
        """Trust the host's key, and those of its node's other workers, as the cloud tells them, if none is pinned.

        Raises HostFault (`no-host-key`) while the host has not told it, and what the cloud's answer raises.
        """
        if self.trust.get(host.identity) is not None:
            return
        with self._pinning[host.node]:  # one answer tells the keys of all workers
            if self.trust.get(host.identity) is None:
                keys = self.cloud.host_keys(host.node, host.zone)
                node_id = host.identity.removesuffix(f"-w{host.worker}")
                for worker, key in enumerate(keys):
                    if key:
                        self.trust.pin(f"{node_id}-w{worker}", key)
        if self.trust.get(host.identity) is None:
            raise HostFault(
                "no host key of it in the guest attributes",
                kind="no-host-key",
                where=host.name,
                hint="run the same command again; if it stays so, delete the node and create it anew",
            )

    def connect(self, host: Host) -> Connection:
        """The command's one connection to `host`, its key pinned before."""
        self.pin(host)
        return self.dialer.connect(host)

    def agent(self, host: Host) -> Agent:
        """The agent of `host`."""
        return Agent(self.connect(host), host)


def pauses(first_s: float = 0.1, longest_s: float = 2.0, *, limit_s: float) -> Iterator[float]:
    """Growing pauses between looks at something that can only be polled; ends when `limit_s` seconds are over.

    Yields the seconds passed so far, the first time at once, and sleeps between two looks.
    The longest pause is what a person waits for nothing: a create is to be over 3 s after its slowest node.
    """
    start = time.monotonic()
    pause = first_s
    while (passed := time.monotonic() - start) < limit_s:
        yield passed
        time.sleep(min(pause, max(0.0, limit_s - passed)))
        pause = min(pause * 1.5, longest_s)


def values_or_raise(
    fleet: Fleet, outcomes: Sequence[Outcome[Host, V]], what: str, *, told: bool = False
) -> tuple[V, ...]:
    """Every outcome's value; where some failed, each is told (unless it was `told` when it happened).

    Then the only error, or a PartialFailure, is raised.
    """
    failed = [(outcome.item, outcome.error) for outcome in outcomes if outcome.error]
    for host, error in failed:
        if not told:
            fleet.say(host.name, error.message, "failed")
    if not failed:
        return tuple(outcome.unwrap() for outcome in outcomes)
    first = failed[0][1]
    if len(failed) == len(outcomes):
        raise first
    raise PartialFailure(f"{len(failed)} of {len(outcomes)} {what}: {first}", hint=first.hint)
