"""The nodes that the fleet has had, from `nodes.json`: when each was there, and what an hour of it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from tpufleet.report.records import Record, as_count, as_list, as_number, as_record, as_text, as_time, read_json

MOST = 2_000
_MOST_HOSTS = 1_024
_MOST_CHIPS_IN_ALL = 40_000  # the others have no rows of their own
_MOST_CHIPS = 64  # of one host; no type has more than 8


@dataclass(frozen=True, slots=True)
class Node:
    """A node from its creation until it was found `gone`, or was last `seen`.

    `usd_per_hour` is a list price for all of it: 0 under a grant, None where it isn't known.
    """

    name: str
    zone: str
    accelerator: str
    spot: bool
    created: datetime
    until: datetime
    gone: bool
    hosts: tuple[str, ...]
    chips_per_host: int
    usd_per_hour: float | None

    @property
    def life(self) -> timedelta:
        return self.until - self.created

    @property
    def chips(self) -> tuple[str, ...]:
        return tuple(f"{host}:{n}" for host in self.hosts for n in range(self.chips_per_host))


def read_nodes(home: Path) -> tuple[Node, ...]:
    """The nodes by name and age; those without a time of creation are left out, and hosts beyond all measure."""
    listed = as_list(as_record(read_json(home / "nodes.json")).get("nodes"))[:MOST]
    nodes: list[Node] = []
    room = _MOST_CHIPS_IN_ALL
    for node in map(_node, map(as_record, listed)):
        if node:
            chips = len(node.hosts) * node.chips_per_host
            nodes.append(node if chips <= room else replace(node, hosts=()))
            room -= min(chips, room)
    return tuple(sorted(nodes, key=lambda node: (node.name, node.created)))


def _node(record: Record) -> Node | None:
    created, seen, gone = (as_time(record.get(name)) for name in ("created", "seen", "gone"))
    if created is None:
        return None
    price = as_number(record.get("usd_per_hour"))
    return Node(
        name=as_text(record.get("name"), 80),
        zone=as_text(record.get("zone"), 80),
        accelerator=as_text(record.get("accelerator"), 80),
        spot=record.get("spot") is True,
        created=created,
        until=max(created, gone or seen or created),
        gone=gone is not None,
        hosts=tuple(as_text(host, 80) for host in as_list(record.get("hosts"))[:_MOST_HOSTS]),
        chips_per_host=min(_MOST_CHIPS, as_count(record.get("chips_per_host")) or 0),
        usd_per_hour=price if price is not None and 0 <= price < 1e6 else None,
    )
