"""Which hosts a person means."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tpufleet.errors import UsageError
from tpufleet.model import Host


def select(hosts: Sequence[Host], selector: str) -> tuple[Host, ...]:
    """The hosts that `selector` names: hosts, nodes (all their hosts) or patterns, comma-separated; empty means all.

    Raises UsageError for a part that names none.
    """
    if not selector:
        return tuple(hosts)
    chosen: dict[str, Host] = {}
    for part in selector.split(","):
        matching = [host for host in hosts if fnmatchcase(host.name, part) or fnmatchcase(host.node, part)]
        if not matching:
            names = ", ".join(host.name for host in hosts[:10]) or "none; tpufleet create"
            raise UsageError(f"no host or node of the fleet is called {part!r}", hint=f"hosts: {names}")
        chosen |= {host.name: host for host in matching}
    return tuple(chosen.values())
