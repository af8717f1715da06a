"""What the fleet's time would cost at list prices, and whose it was. Pure: nodes and attempts in, sums out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tpufleet.report.load import Attempt, Run
from tpufleet.report.nodes import Node

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Cost:
    """Node-hours, and chip-hours with those of runs among them; `usd` is what is priced, `unpriced` the nodes that
    aren't; `runs` gives each run its chips' share of their nodes' price."""

    node_hours: float = 0.0
    chip_hours: float = 0.0
    busy_hours: float = 0.0
    usd: float = 0.0
    unpriced: int = 0
    runs: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def idle(self) -> float | None:
        """The share of the chips' time in which no run had them; None without nodes."""
        return max(0.0, 1 - self.busy_hours / self.chip_hours) if self.chip_hours else None


def cost_of(nodes: Sequence[Node], runs: Sequence[Run]) -> Cost:
    """The sums over all `nodes`; a run's time counts where it lies within the life of a node that has its chip."""
    by_host: dict[str, list[Node]] = {}
    for node in nodes:
        for host in node.hosts:
            by_host.setdefault(host, []).append(node)
    busy, shares = 0.0, dict[str, float]()
    for run in runs:
        for attempt in run.attempts:
            for node in by_host.get(attempt.host, ()):
                hours = _within(attempt, node) * min(len(attempt.chips), len(node.chips))
                busy += hours
                if node.usd_per_hour is not None and node.chips:
                    shares[run.id] = shares.get(run.id, 0.0) + hours * node.usd_per_hour / len(node.chips)
    return Cost(
        node_hours=sum(node.life / HOUR for node in nodes),
        chip_hours=sum(node.life / HOUR * len(node.chips) for node in nodes),
        busy_hours=busy,
        usd=sum(node.life / HOUR * (node.usd_per_hour or 0.0) for node in nodes),
        unpriced=sum(node.usd_per_hour is None for node in nodes),
        runs=shares,
    )


def _within(attempt: Attempt, node: Node) -> float:
    """Hours of the attempt on the node; one that hasn't ended goes on as long as the node was seen."""
    if attempt.started is None:
        return 0.0
    begin: datetime = max(attempt.started, node.created)
    end = min(attempt.ended or node.until, node.until)
    return max(0.0, (end - begin) / HOUR)
