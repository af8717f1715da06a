"""Make the hosts of READY nodes usable: trusted, reachable over SSH, as many chips as promised, the code on them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from tpufleet.errors import HostFault, TpufleetError, Unreachable
from tpufleet.model import Code, Host, HostView, Node, NodeState, Provider
from tpufleet.ops.code import Bring, Synced, syncing
from tpufleet.ops.fleet import Fleet, pauses
from tpufleet.ops.observe import hosts_of
from tpufleet.ssh.fanout import Crew, Outcome

BOOT_LIMIT_S = 300.0  # a VM that was made or started just now
THERE_LIMIT_S = 15.0  # one that has been there before; its last try may take 10 s more, and a person is promised 30
AT_ONCE = 32
LOOK_AT_NODE_S = 5.0  # while a host is silent: is its node still there?


@dataclass(frozen=True)
class Prepared:
    """A host that can be used, and its code if the file names any."""

    view: HostView
    synced: Synced | None


@dataclass(frozen=True)
class _Work:
    """A host to prepare; `fresh`: its node was made or started by this command."""

    host: Host
    fresh: bool

    @property
    def limit_s(self) -> float:
        return BOOT_LIMIT_S if self.fresh else THERE_LIMIT_S


class Preparation:
    """Hosts are made ready as their nodes come, each on its own: nobody waits for the slowest node's hosts."""

    def __init__(self, fleet: Fleet, bring: Bring | None) -> None:
        self._fleet = fleet
        self._bring = bring
        self._crew: Crew[_Work, Prepared] = Crew(self._prepare, limit=AT_ONCE)
        self._ready: list[HostView] = []

    def of_new(self, node: Node) -> None:
        """Begin with the hosts of a node that became READY just now."""
        self._add(node, fresh=True)

    def of_old(self, node: Node) -> None:
        """Begin with the hosts of a node that was there before."""
        self._add(node, fresh=False)

    @property
    def ready(self) -> tuple[HostView, ...]:
        """The hosts that can be used already."""
        return tuple(self._ready)

    def finish(self) -> list[Outcome[Host, Prepared]]:
        """Wait for all that were begun."""
        return [Outcome(outcome.item.host, outcome.value, outcome.error) for outcome in self._crew.finish()]

    def _add(self, node: Node, *, fresh: bool) -> None:
        for host in hosts_of(self._fleet, [node]):
            self._crew.add(_Work(host, fresh))

    def _prepare(self, work: _Work) -> Prepared:
        host = work.host
        try:
            self._await_key(host, work.limit_s)
            view = HostView(host, probe=_first_answer(self._fleet, work))
            self._check_chips(view)
            self._fleet.say(host.name, f"ready: {len(view.chips)} chips", "done")
            prepared = Prepared(view, self._bring(host, fresh=work.fresh) if self._bring else None)
        except TpufleetError as error:
            self._fleet.say(host.name, error.message + (f" → {error.hint}" if error.hint else ""), "failed")
            raise
        self._ready.append(view)
        return prepared

    def _check_chips(self, view: HostView) -> None:
        host = view.host
        if len(view.chips) < host.chips:
            inventory = self._fleet.spec.cloud.provider is Provider.INVENTORY
            raise HostFault(
                f"shows {len(view.chips)} of {host.chips} chips",
                kind="chips-missing",
                where=host.name,
                hint="correct its `accelerator` in the fleet file, or ask who runs the host"
                if inventory
                else f"tpufleet delete {host.node}, then tpufleet create",
            )

    def _await_key(self, host: Host, limit_s: float) -> None:
        """A host writes its key to the guest attributes while it boots, some moments after its node is READY."""
        for _ in pauses(limit_s=limit_s):
            try:
                return self._fleet.pin(host)
            except HostFault as error:
                if error.kind != "no-host-key":
                    raise
        return self._fleet.pin(host)


@contextlib.contextmanager
def preparation(fleet: Fleet, code: Code | None) -> Generator[Preparation]:
    """The preparation of hosts, with the code if there is any."""
    if code is None:
        yield Preparation(fleet, None)
        return
    with syncing(fleet, code) as bring:
        yield Preparation(fleet, bring)


def _first_answer(fleet: Fleet, work: _Work) -> Mapping[str, Any]:
    """The host's first probe; a VM that boots refuses connections for a while."""

    def ask() -> Mapping[str, Any]:
        agent = fleet.agent(work.host)
        return agent.ship_and_ask("probe", {}) if work.fresh else agent.ask("probe", {})

    silent: Unreachable | None = None
    looked = 0.0
    for passed in pauses(limit_s=work.limit_s):
        try:
            return ask()
        except Unreachable as error:
            if silent is None:
                fleet.say(work.host.name, f"waiting for SSH ({error.message})")
            silent = error
        if passed - looked > LOOK_AT_NODE_S:
            looked = passed
            _refuse_if_gone(fleet, work.host)
    raise silent or Unreachable("was not asked", where=work.host.name)


def _refuse_if_gone(fleet: Fleet, host: Host) -> None:
    """A host whose node was taken away meanwhile isn't waited for. Raises HostFault."""
    there = [node for node in fleet.cloud.nodes(host.zone) if node.name == host.node]
    if not any(host.identity == f"{node.uid}-w{host.worker}" and node.state is NodeState.READY for node in there):
        state = there[0].state if there else "gone"
        raise HostFault(f"its node is {state}", kind="node-gone", where=host.name, hint="tpufleet create")
