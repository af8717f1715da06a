"""The fleet at hand: everything an operation works with, made once per command and passed along."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tpufleet.cloud.port import Cloud
from tpufleet.errors import PartialFailure
from tpufleet.model import Event, Host, Spec
from tpufleet.paths import LocalPaths
from tpufleet.ssh.agent import Agent
from tpufleet.ssh.fanout import Outcome
from tpufleet.ssh.port import Dialer
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

    def say(self, subject: str, text: str, state: str = "info") -> None:
        """Tell the person that `text` is so for `subject` (a node, a host, a run)."""
        with self._speaking:
            self.emit(Event(subject, text, state))

    def agent(self, host: Host) -> Agent:
        """The agent of `host`, over the command's one connection to it."""
        return Agent(self.dialer.connect(host), host)


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
