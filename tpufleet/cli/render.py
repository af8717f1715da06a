"""Values as JSON fields and as table rows; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tpufleet.actions import AwaitNode, CreateNode, DeleteNode, Plan, StartNode
from tpufleet.cli.pace import BOOKKEEPING
from tpufleet.cli.tables import Column, by_word
from tpufleet.model import HostView, Node, Queued, Snapshot
from tpufleet.text import lasted, size

MARKS = {"info": "·", "done": "✓", "failed": "✗"}  # by an event's state
PLAIN_MARKS = {"info": "-", "done": "ok", "failed": "FAILED"}  # where the terminal can't show those
PLAN_COLUMNS = ("action", "node", "type", "zone", "usd/h", "why")
NODE_STYLES = {
    "READY": "green",
    "PREEMPTED": "bold red",
    "TERMINATED": "bold red",
    "absent": "yellow",
    "CREATING": "yellow",
}
CHIP_STYLES = {
    "free": "dim",
    "run": "green",
    "person": "cyan",
    "seat": "cyan",
    "busy": "yellow",
    "unreachable": "bold red",
    "bare": "yellow",
}
NODE_COLUMNS = (
    Column("node", least=10, middle=True),
    Column("type", rank=2, least=6),
    Column("zone", rank=4, least=10),
    Column("state", least=12, wraps=True, paint=by_word(NODE_STYLES)),
    Column("age", rank=3, least=6, number=True),
    Column("cost so far", rank=1, least=9, number=True),
)
CHIP_COLUMNS = (
    Column("chip", least=12, middle=True),
    Column("state", least=6, paint=by_word(CHIP_STYLES)),
    Column("who", least=16, middle=True),
    Column("HBM", rank=2, least=9, number=True),
    Column("busy", rank=1, least=4, number=True),
    Column("pid", rank=3, least=5, number=True),
    Column("command", rank=4, least=20),
    Column("says", least=20, wraps=True),
)
CHIP_FIELDS = (
    *("state", "seat", "run", "person", "user", "pid", "command", "suspect", "hbm_used", "hbm_total", "duty_pct"),
)
HOST_COLUMNS = (
    Column("host", least=10, middle=True),
    Column("address", rank=5, least=9),
    Column("chips", rank=2, least=5, number=True),
    Column("disk free", rank=3, least=9, number=True),
    Column("memory free", rank=4, least=9, number=True),
    Column("code", rank=6, least=10),
    Column("says", least=20, wraps=True, paint=by_word({"ok": "green"})),
)


def plan_fields(plan: Plan, *, trc: bool) -> list[dict[str, Any]]:
    """The plan's actions as JSON; under a `trc` grant nodes cost nothing."""
    fields: list[dict[str, Any]] = []
    for action in plan.actions:
        match action:
            case CreateNode(name, zones, pool):
                more = {
                    "zones": list(zones),
                    "accelerator": pool.accelerator,
                    "runtime": pool.runtime or pool.type.runtime,
                    "spot": pool.spot,
                    "queued": pool.queued,
                    "usd_per_hour": 0.0 if trc else pool.type.usd_per_hour(spot=pool.spot),
                }
                fields.append({"action": "create", "node": name, "zone": action.zone, **more})
            case StartNode(name, zone):
                fields.append({"action": "start", "node": name, "zone": zone})
            case AwaitNode(name, zone, queued):
                fields.append({"action": "await", "node": name, "zone": zone, "queued": queued})
            case DeleteNode(name, zone, why, _, queued):
                fields.append({"action": "delete", "node": name, "zone": zone, "why": why, "queued_resource": queued})
    return fields


def plan_rows(fields: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The plan's actions as rows of PLAN_COLUMNS."""
    return [
        (
            item["action"],
            item["node"],
            item.get("accelerator", "") + (" spot" if item.get("spot") else ""),
            " or ".join(item.get("zones") or [item["zone"]]),
            _usd(item["usd_per_hour"]) if "usd_per_hour" in item else "",
            item.get("why", "through the queue" if item.get("queued") is True else ""),
        )
        for item in fields
    ]


def bill_line(plan: Plan, *, trc: bool) -> str:
    """What the nodes to be made cost by the hour, in all three ways of paying; empty when none is made."""
    pools = [action.pool for action in plan.actions if isinstance(action, CreateNode)]
    if not pools:
        return ""
    bill = _total(pool.type.usd_per_hour(spot=pool.spot) for pool in pools)
    if trc:
        chosen = "the new nodes cost 0 USD an hour (TRC grant)"
    elif bill is None:
        chosen = "the price of the new nodes is not known here"
    else:
        chosen = f"the new nodes cost about {bill:.2f} USD an hour"
    demand, spot = (_total(pool.type.usd_per_hour(spot=spot) for pool in pools) for spot in (False, True))
    return f"{chosen}; on demand {_usd(demand)}, spot {_usd(spot)}, under a TRC grant 0"


def unknown_places(plan: Plan) -> list[str]:
    """Types that no zone of the file is known to have; the table is a copy of Google's, so this is no error."""
    pools = {action.pool.accelerator: action for action in plan.actions if isinstance(action, CreateNode)}
    return [
        f"{name}: none of {', '.join(action.zones)} is known to have it (known: {', '.join(action.pool.type.zones)})"
        for name, action in pools.items()
        if not set(action.zones) & set(action.pool.type.zones)
    ]


def _total(prices: Iterable[float | None]) -> float | None:
    known = list(prices)
    return None if None in known else math.fsum(price for price in known if price is not None)


def _usd(price: float | None) -> str:
    return "unknown" if price is None else f"{price:.2f}"


def snapshot_fields(fleet: str, snapshot: Snapshot) -> dict[str, Any]:
    """`tpufleet --json status`: see docs/json.md."""
    nodes = [
        _node_fields(node, [view for view in snapshot.hosts if view.host.node == node.name]) for node in snapshot.nodes
    ]
    return {"fleet": fleet, "nodes": nodes, "queued": [_queued_fields(item) for item in snapshot.queued]}


def chip_rows(views: Iterable[HostView]) -> list[tuple[str, ...]]:
    """Every chip as a row of CHIP_COLUMNS, and a row for each host whose chips aren't known."""
    rows: list[tuple[str, ...]] = []
    for view in views:
        if not view.probe:
            state = "unreachable" if view.error else "bare"
            rows.append((view.host.name, state, *[""] * 5, view.error or "run tpufleet create"))
        rows += [chip_row(f"{view.host.name}:{chip['index']}", chip) for chip in view.chips]
    return rows


def chip_row(name: str, chip: Mapping[str, Any]) -> tuple[str, ...]:
    """A chip as a row of CHIP_COLUMNS; what isn't known stays empty."""
    return (
        name,
        chip_state(chip),
        chip_holder(chip),
        f"{gigabytes(chip['hbm_used'])}/{gigabytes(chip['hbm_total'])} GB" if chip.get("hbm_total") else "",
        "" if chip.get("duty_pct") is None else f"{chip['duty_pct']:.0f} %",
        str(chip.get("pid") or ""),
        "" if chip.get("run") else str(chip.get("command") or ""),
        "suspect: the TPU's initialisation failed on it" if chip.get("suspect") else "",
    )


def chip_state(chip: Mapping[str, Any]) -> str:
    """A chip that nobody is on is free, or kept for who sits there."""
    return "seat" if chip["state"] == "free" and chip.get("seat") else str(chip["state"])


def chip_holder(chip: Mapping[str, Any]) -> str:
    """The run on it, else who is on it, else whose seat it is."""
    return str(chip.get("run") or chip.get("person") or chip.get("user") or chip.get("seat") or "")


def gigabytes(count: object) -> str:
    """`3.2` for bytes, where the unit stands beside it."""
    return f"{float(str(count)) / 1e9:.1f}"


def state_words(state: Mapping[str, Any]) -> str:
    """`running`, `queued: no free chip (…)`, `failed: exit nonzero (1)`; a person's stop needs no reason beside it."""
    word, reason = str(state["state"]), state.get("reason")
    if not reason or word in ("running", "stopped", "done"):
        return word
    if word == "queued" and state.get("waits"):
        return f"{word}: {reason} ({state['waits']})"
    attempts: list[dict[str, Any]] = state.get("attempts") or []
    code = attempts[-1].get("exit_code") if attempts else None
    return f"{word}: {reason}" + (f" ({code})" if word == "failed" and code not in (None, 0) else "")


def metric_words(metrics: Mapping[str, Any], limit: int = 3) -> str:
    """`test_loss 2.31  train_loss 2.2`: losses first, numbers short."""
    names = sorted(
        metrics.keys() - BOOKKEEPING, key=lambda name: ("loss" not in name, not name.startswith("test"), name)
    )
    return "  ".join(f"{name} {number(metrics[name])}" for name in names[:limit])


def number(value: object) -> str:
    """A metric for a table: four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return str(value)
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def age(created: str | None, now: datetime | None = None) -> str:
    """`3 h 12 min` since an RFC 3339 time."""
    if not created:
        return ""
    try:
        minutes = int(((now or datetime.now(UTC)) - datetime.fromisoformat(created)).total_seconds() // 60)
    except ValueError:
        return ""
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def host_rows(views: Sequence[HostView]) -> list[tuple[str, ...]]:
    """Hosts as rows of HOST_COLUMNS."""
    rows: list[tuple[str, ...]] = []
    for view in views:
        probe = view.probe
        if not probe:
            word = view.error or "nothing of tpufleet on it yet"
            rows.append((view.host.name, view.host.address, "", "", "", "", word))
            continue
        code = ", ".join(str(item["commit"])[:10] + ("*" if item.get("dirty") else "") for item in probe["code"][-1:])
        free, memory = size(int(probe["disk"]["free"])), size(int(probe["memory"]["available"]))
        rows.append((view.host.name, view.host.address, str(len(view.chips)), free, memory, code, "ok"))
    return rows


def _node_fields(node: Node, views: Sequence[HostView]) -> dict[str, Any]:
    return {
        "name": node.name,
        "zone": node.zone,
        "state": node.state,
        "health": node.health,
        "accelerator": node.accelerator,
        "created": node.created,
        "expires": None if node.expires is None else datetime.fromtimestamp(node.expires, UTC).isoformat(),
        "adopted": node.adopted,
        "queued": node.queued,
        "hosts": [_host_fields(view) for view in views],
    }


def _queued_fields(queued: Queued) -> dict[str, Any]:
    return {
        "name": queued.name,
        "zone": queued.zone,
        "state": queued.state,
        "node": queued.node,
        "accelerator": queued.accelerator,
        "why": queued.why,
    }


def node_state(node: Node, now: datetime | None = None) -> str:
    """`READY`, `READY, adopted`, `READY, ends in 3 h 12 min`."""
    words = [str(node.state)]
    if node.health not in ("HEALTHY", "HEALTH_UNSPECIFIED", ""):
        words.append(node.health)
    if node.adopted:
        words.append("adopted")
    if node.expires is not None:
        left = node.expires - (now or datetime.now(UTC)).timestamp()
        words.append(f"ends in {lasted(left)}" if left > 0 else "its ttl is over")
    return ", ".join(words)


def ttl_lines(views: Iterable[HostView]) -> list[str]:
    """The nodes that can't keep their own ttl, by their hosts' words, and who has to."""
    lines: list[str] = []
    for view in views:
        kept: Mapping[str, Any] = (view.probe or {}).get("ttl") or {}
        if kept.get("can_delete") is False:
            why = kept.get("why") or "it may not"
            lines.append(
                f"{view.host.node} can't delete itself when its ttl is over ({why}): tpufleet delete --expired"
            )
    return lines


def _host_fields(view: HostView) -> dict[str, Any]:
    state = "ready" if view.probe else "bare" if view.bare else "unreachable"
    chips = [
        {
            "name": f"{view.host.name}:{chip['index']}",
            **{key: chip.get(key) for key in CHIP_FIELDS},
        }
        for chip in view.chips
    ]
    fields: dict[str, Any] = {"name": view.host.name, "address": view.host.address, "state": state, "chips": chips}
    if view.probe:
        fields |= {key: view.probe.get(key) for key in ("disk", "memory", "code", "uptime_s")}
    return fields | {"error": view.error}
