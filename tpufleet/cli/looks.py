"""Every host asked again and again, each by a thread of its own: a silent one keeps nobody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tpufleet.model import Host, HostView, Node

if TYPE_CHECKING:
    from tpufleet.ops.fleet import Fleet

NODES_S = 15.0  # how often the cloud is asked which nodes there are
PARTING_S = 0.5


@dataclass(frozen=True)
class Look:
    """A host as it was last heard: its `view` (None before it said anything), and when it began to be asked and when
    it last answered, in monotonic seconds."""

    host: Host
    began: float
    view: HostView | None = None
    heard: float | None = None

    def silence(self, now: float) -> float:
        """For how many seconds nothing was heard of it."""
        return now - (self.began if self.heard is None else self.heard)


@dataclass
class Looks:
    """A context: while it is open, the fleet's hosts are probed every `every_s` seconds over connections that stay."""

    fleet: Fleet
    every_s: float
    nodes: Sequence[Node] = ()
    _looks: dict[str, Look] = field(default_factory=dict[str, Look])  # by the host's identity
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])
    _changing: threading.Condition = field(default_factory=threading.Condition)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._find()
        self._begin(self._keep_finding)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        until = time.monotonic() + PARTING_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def all(self) -> list[Look]:
        """The hosts as they were last heard, in the nodes' order."""
        with self._changing:
            return list(self._looks.values())

    def wait(self, seconds: float) -> None:
        """Until every host has answered for the first time, or the time is over."""
        with self._changing:
            self._changing.wait_for(lambda: all(look.view for look in self._looks.values()), seconds)

    def _find(self) -> None:
        """Take in what nodes there are; a host that was not known is asked from now on."""
        from tpufleet.ops.observe import find_nodes, hosts_of

        nodes = find_nodes(self.fleet)
        hosts = {host.identity: host for host in hosts_of(self.fleet, nodes)}
        with self._changing:
            new = [host for identity, host in hosts.items() if identity not in self._looks]
            known = self._looks | {host.identity: Look(host, time.monotonic()) for host in new}
            self._looks = {identity: known[identity] for identity in hosts}
            self.nodes = nodes
        for host in new:
            self._begin(self._keep_asking, host)

    def _begin(self, work: Any, *arguments: Host) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _keep_finding(self) -> None:
        from tpufleet.errors import TpufleetError

        while not self._ended.wait(NODES_S):
            try:
                self._find()
            except TpufleetError:
                continue  # what was known stays; a host that is gone is seen by its silence

    def _keep_asking(self, host: Host) -> None:
        from tpufleet.ops.observe import view_of

        def ask(host: Host) -> Mapping[str, Any]:
            return self.fleet.agent(host).ask("probe", {})

        while not self._ended.is_set():
            began = time.monotonic()
            view = view_of(self.fleet, host, ask)
            with self._changing:
                if host.identity not in self._looks:
                    return
                last = self._looks[host.identity]
                heard = time.monotonic() if view.error is None else last.heard
                self._looks[host.identity] = replace(last, view=view, heard=heard)
                self._changing.notify_all()
            self._ended.wait(max(0.0, began + self.every_s - time.monotonic()))
