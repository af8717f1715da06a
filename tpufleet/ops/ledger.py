"""Every node that was ever seen, with its times and price: `artifacts/FLEET/nodes.json`.

The cloud forgets a node when it is deleted; the report's timeline and the cost of an evening need it nevertheless. What
stands here is only for people to look at: nothing is decided by it, and it may be deleted at any time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tpufleet.accelerators import lookup
from tpufleet.errors import StateError, UsageError
from tpufleet.model import GONE_STATES, Node, Provider, Spec
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import write_json

NAME = "nodes.json"
SCHEMA = 1
MOST_NODES = 2_000
LARGEST = 16 << 20  # bytes

Entry = dict[str, Any]


def remember(fleet: Fleet, nodes: Sequence[Node]) -> None:
    """Takes down that exactly these nodes of the fleet are there now; those that were known and are not, are gone.

    Called by whoever has just asked all of the fleet's zones. One that has no id yet is still in the making. Two at
    once lose nothing that the next look does not bring back. A disk that is full is told, and is no reason to stop
    what the person asked for.
    """
    if fleet.dry_run:
        return
    path = fleet.paths.artifacts / NAME
    now = datetime.now(UTC)
    entries = merge(read(path), [entry_of(node, fleet.spec, now) for node in nodes if node.uid], now)
    if not entries:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"schema": SCHEMA, "fleet": fleet.spec.fleet, "nodes": entries})
    except (OSError, StateError) as error:
        why = error.strerror if isinstance(error, OSError) else error.message
        fleet.say(NAME, f"the nodes' times could not be written down: {why}", "failed")


def entry_of(node: Node, spec: Spec, now: datetime) -> Entry:
    """A node as the ledger has it, seen at `now`. One that was preempted is listed still, but not there any more."""
    workers = len(node.addresses)
    chips = price = None
    try:
        kind = lookup(node.accelerator)
        workers = workers or kind.hosts
        chips, price = kind.chips_per_host, kind.usd_per_hour(spot=node.spot)
    except UsageError:
        pass  # a type that came after this table
    if spec.cloud.provider is Provider.INVENTORY:
        price = None  # lent: nobody here knows what it costs
    return {
        "name": node.name,
        "id": node.uid,
        "zone": node.zone,
        "accelerator": node.accelerator,
        "spot": node.spot,
        "created": _utc(node.created),
        "seen": shown(now),
        "gone": shown(now) if node.state in GONE_STATES else None,
        "hosts": [f"{node.name}-w{worker}" for worker in range(workers)],
        "chips_per_host": chips,
        "usd_per_hour": 0.0 if spec.cloud.trc else price,
    }


def merge(known: Iterable[Mapping[str, Any]], present: Iterable[Mapping[str, Any]], now: datetime) -> list[Entry]:
    """What is known, brought up to date by what is `present`; by id, the oldest first, at most MOST_NODES.

    A node that isn't there any more was last seen when it was, and is gone since somebody noticed: since then it costs
    nothing.
    """
    entries: dict[str, Entry] = {str(entry["id"]): dict(entry) for entry in known}
    here = {str(entry["id"]): dict(entry) for entry in present}
    for name, entry in entries.items():
        if name not in here and entry.get("gone") is None:
            entry["gone"] = shown(now)
    for name, entry in here.items():
        before = entries.get(name, {})
        if entry["gone"] is not None and before:  # preempted, and listed until somebody deletes it
            gone = before.get("gone") or entry["gone"]
            entry |= {"gone": gone, "seen": before["seen"], "hosts": before["hosts"]}
        entries[name] = {**before, **entry}
    kept = sorted(entries.values(), key=lambda entry: (entry["gone"] is None, entry["seen"]))[-MOST_NODES:]
    return sorted(kept, key=lambda entry: (entry.get("created") or "", entry["name"], entry["id"]))


def read(path: Path) -> list[Entry]:
    """The entries of an earlier look; what can't be read is left out, and written no more."""
    try:
        if path.stat().st_size > LARGEST:
            return []
        document: Any = json.loads(path.read_bytes())
        return [entry for entry in list[Any](document["nodes"]) if _is_sound(entry)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _is_sound(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    fields = cast("Entry", entry)
    texts = all(isinstance(fields.get(name), str) for name in ("id", "name", "seen"))
    times = all(isinstance(fields.get(name), (str, type(None))) for name in ("created", "gone"))
    return texts and times and isinstance(fields.get("hosts"), list)


def shown(time: datetime) -> str:
    """A moment as RFC 3339 in UTC, to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _utc(time: str | None) -> str | None:
    """The cloud's own time in our writing (Google's has nanoseconds)."""
    try:
        return shown(datetime.fromisoformat(time)) if time else None
    except ValueError:
        return None
