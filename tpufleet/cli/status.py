"""`tpufleet status`: nodes, hosts, chips, who and what is on each chip."""

from __future__ import annotations

from collections import Counter

import typer

from tpufleet.cli.arguments import session
from tpufleet.cli.output import Output
from tpufleet.cli.render import (
    CHIP_COLUMNS,
    HOST_COLUMNS,
    NODE_COLUMNS,
    age,
    chip_rows,
    chip_state,
    host_rows,
    node_state,
    snapshot_fields,
    ttl_lines,
)
from tpufleet.model import Node, NodePool, Snapshot


def status(context: typer.Context) -> None:
    """Show nodes, hosts, chips, and what is on each chip.

    Example: tpufleet status --json
    """
    from tpufleet.ops.observe import observe
    from tpufleet.plan import wanted_nodes

    this = session(context)
    with this.fleet("status") as fleet:
        snapshot = observe(fleet)
    wanted = {str(name): pool for name, pool in wanted_nodes(fleet.spec).items()}
    _show(this.out, snapshot, wanted, trc=fleet.spec.cloud.trc)
    this.out.data(**snapshot_fields(fleet.spec.fleet, snapshot))


def _show(out: Output, snapshot: Snapshot, wanted: dict[str, NodePool], *, trc: bool) -> None:
    there = {node.name for node in snapshot.nodes}
    rows = [
        (node.name, node.accelerator, node.zone, node_state(node), age(node.created), _cost(node, trc=trc))
        for node in snapshot.nodes
    ]
    waiting = {queued.node: queued for queued in snapshot.queued if queued.node not in there}
    rows += [(name, item.accelerator, item.zone, f"queue: {item.state}", "", "") for name, item in waiting.items()]
    absent = {name: pool for name, pool in wanted.items() if name not in there | set(waiting)}
    rows += [(name, pool.accelerator, "", "absent", "", "") for name, pool in absent.items()]
    out.table(NODE_COLUMNS, rows)
    for line in ttl_lines(snapshot.hosts):
        out.line(line)
    if snapshot.hosts:
        out.line()
        out.table(HOST_COLUMNS, host_rows(snapshot.hosts))
        out.line()
        out.table(CHIP_COLUMNS, chip_rows(snapshot.hosts))
        counts = Counter(chip_state(chip) for view in snapshot.hosts for chip in view.chips)
        out.line()
        out.line(f"{counts.total()} chips: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))


def _cost(node: Node, *, trc: bool) -> str:
    """By the price list, on demand or spot; under a TPU Research Cloud grant it is nothing."""
    if trc:
        return "0 (TRC)"
    from datetime import UTC, datetime

    from tpufleet.accelerators import lookup
    from tpufleet.errors import UsageError

    try:
        kind = lookup(node.accelerator)
        hours = (datetime.now(UTC) - datetime.fromisoformat(node.created or "")).total_seconds() / 3600
    except (UsageError, ValueError):
        return ""
    price = kind.usd_per_hour(spot=node.spot)
    return "" if price is None else f"{price * hours:.2f} USD"
