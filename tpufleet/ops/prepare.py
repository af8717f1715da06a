"""Make the hosts of READY nodes usable: reachable over SSH, trusted, the agent on them, as many chips as promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpufleet.errors import HostFault, Unreachable
from tpufleet.model import Host, HostView
from tpufleet.ops.fleet import Fleet, pauses, values_or_raise
from tpufleet.ops.observe import trust
from tpufleet.plan import wanted_nodes
from tpufleet.ssh.fanout import gather

BOOT_LIMIT_S = 300.0


def prepare(fleet: Fleet, hosts: Sequence[Host]) -> tuple[HostView, ...]:
    """Wait for each host's SSH, pin its key, put the agent on it; returns what each says of itself.

    Raises the one host's error, or PartialFailure when some of many can't be prepared; the others are.
    """
    _await_keys(fleet, hosts)
    outcomes = gather(hosts, lambda host: _prepare_host(fleet, host))
    return values_or_raise(fleet, outcomes, "hosts could not be prepared")


def _await_keys(fleet: Fleet, hosts: Sequence[Host]) -> None:
    """A host writes its key to the guest attributes while it boots, some moments after its node is READY."""
    missing: list[str] = []
    for _ in pauses(limit_s=BOOT_LIMIT_S):
        trust(fleet, hosts)
        missing = [host.name for host in hosts if fleet.trust.get(host.identity) is None]
        if not missing:
            return
    raise HostFault(
        f"no host key in the guest attributes of {', '.join(missing)}",
        kind="no-host-key",
        hint="run the same command again; if it stays so, delete the node and create it anew",
    )


def _prepare_host(fleet: Fleet, host: Host) -> HostView:
    view = HostView(host, probe=_first_answer(fleet, host))
    expected = _chips_expected(fleet, host)
    if len(view.chips) < expected:
        raise HostFault(
            f"shows {len(view.chips)} of {expected} chips",
            kind="chips-missing",
            where=host.name,
            hint=f"tpufleet delete {host.node}, then tpufleet create",
        )
    fleet.say(host.name, f"ready: {len(view.chips)} chips", "done")
    return view


def _first_answer(fleet: Fleet, host: Host) -> Mapping[str, Any]:
    """The host's first probe; a VM that boots refuses connections for a while."""
    for passed in pauses(limit_s=BOOT_LIMIT_S):
        try:
            return fleet.agent(host).ask("probe", {})
        except Unreachable:
            if passed == 0:
                fleet.say(host.name, "waiting for SSH")
    return fleet.agent(host).ask("probe", {})


def _chips_expected(fleet: Fleet, host: Host) -> int:
    pool = next((pool for name, pool in wanted_nodes(fleet.spec).items() if name == host.node), None)
    return pool.type.chips_per_host if pool else 0
