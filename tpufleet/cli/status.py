"""`tpufleet status`: nodes, hosts, chips, who and what is on each chip."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

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
from tpufleet.cli.tables import Column, Fitted, Rows
from tpufleet.errors import Interrupted, TpufleetError
from tpufleet.model import Node, NodePool, Snapshot, Spec
from tpufleet.text import clean

if TYPE_CHECKING:
    from tpufleet.names import NodeName
    from tpufleet.ops.fleet import Fleet


EVERY_S = 3.0

Part = str | tuple[Sequence[Column], Rows]  # a line, or a table


def status(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Look again and again, until Ctrl-C.")] = False,
) -> None:
    """Show nodes, hosts, chips, and what is on each chip.

    Example: tpufleet --json status

    Example: tpufleet status --follow
    """
    from tpufleet.ops.observe import observe

    this = session(context)
    with this.fleet("status") as fleet:
        snapshot = observe(fleet)
        if follow and this.out.live and sys.stdout.isatty():
            _follow(this.out, fleet, snapshot)
            return
    for part in _parts(snapshot, fleet.spec):
        if isinstance(part, str):
            this.out.line(part)
        else:
            this.out.table(*part)
    this.out.data(**snapshot_fields(fleet.spec.fleet, snapshot))


def _follow(out: Output, fleet: Fleet, snapshot: Snapshot) -> None:
    """In place, until Ctrl-C, which is its good end: nothing was changed."""
    from rich.console import Group
    from rich.text import Text

    from tpufleet.cli.live import moving
    from tpufleet.ops.observe import observe

    shown, trouble = snapshot, ""

    def draw(whole: bool) -> Any:
        parts = _parts(shown, fleet.spec)
        if not whole:
            parts += [f"{trouble}: this is how it was" if trouble else f"every {EVERY_S:g} s; Ctrl-C ends"]
        return Group(*(Text(clean(part)) if isinstance(part, str) else Fitted(*part) for part in parts))

    try:
        with moving(out.console(sys.stdout), draw):
            while True:
                time.sleep(EVERY_S)
                try:
                    shown, trouble = observe(fleet), ""
                except TpufleetError as error:  # it may be back in a moment
                    trouble = error.message
    except Interrupted as interrupted:
        if interrupted.signal != signal.SIGINT:
            raise


def _parts(snapshot: Snapshot, spec: Spec) -> list[Part]:
    """Nodes, hosts and chips, from top to bottom."""
    from tpufleet.plan import wanted_nodes

    parts: list[Part] = [(NODE_COLUMNS, _node_rows(snapshot, spec, wanted_nodes(spec))), *ttl_lines(snapshot.hosts)]
    if snapshot.hosts:
        counts = Counter(chip_state(chip) for view in snapshot.hosts for chip in view.chips)
        by_state = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        parts += ["", (HOST_COLUMNS, host_rows(snapshot.hosts)), "", (CHIP_COLUMNS, chip_rows(snapshot.hosts)), ""]
        parts.append(f"{counts.total()} chips: {by_state}")
    return parts


def _node_rows(snapshot: Snapshot, spec: Spec, wanted: Mapping[NodeName, NodePool]) -> list[tuple[str, ...]]:
    """Nodes that are there, that wait in a queue, and that the file wants and nobody has made yet."""
    there = {node.name for node in snapshot.nodes}
    rows = [
        (node.name, node.accelerator, node.zone, node_state(node), age(node.created), _cost(node, trc=spec.cloud.trc))
        for node in snapshot.nodes
    ]
    waiting = {queued.node: queued for queued in snapshot.queued if queued.node not in there}
    rows += [(name, item.accelerator, item.zone, f"queue: {item.state}", "", "") for name, item in waiting.items()]
    absent = {name: pool for name, pool in wanted.items() if str(name) not in there | set(waiting)}
    return rows + [(str(name), pool.accelerator, "", "absent", "", "") for name, pool in absent.items()]


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
