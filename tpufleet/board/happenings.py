"""Pure: what happened, from what runs tell of their attempts, and from the difference between two looks at the nodes.

The kinds: preempted, rebooted, lost, failed, stopped, done, resumed, again (started once more, from the beginning) of
runs; preempted, gone, anew (under the same name, another machine), added of nodes; silent, heard of hosts.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tpufleet.board.look import Attempt, Told
from tpufleet.board.scene import Happening
from tpufleet.model import GONE_STATES, Node
from tpufleet.report.text import number
from tpufleet.restart import Reason

MOST = 200
CHECKPOINT = re.compile(r"step-(\d{1,15})", re.ASCII)
_KINDS = {
    Reason.PREEMPTED.value: "preempted",
    Reason.HOST_REBOOTED.value: "rebooted",
    Reason.LOST.value: "lost",
    Reason.STOPPED.value: "stopped",
}


def of_run(told: Told) -> tuple[Happening, ...]:
    """What a run went through: its ends, and its starts but for the first."""
    return tuple(_of_run(told))


def _of_run(told: Told) -> Iterator[Happening]:
    last = len(told.attempts) - 1
    for n, attempt in enumerate(told.attempts):
        if n and attempt.started:
            step = CHECKPOINT.search(told.resumed_from) if n == last else None
            where = f" on {attempt.chips[0]}" if attempt.chips else ""
            if step:
                text = f"resumed from step {number(int(step[1]))}{where}"
                yield Happening(attempt.started, "resumed", told.row.id, text)
            else:
                yield Happening(attempt.started, "again", told.row.id, f"started again{where}")
        if attempt.ended:
            kind, text = _end(attempt)
            yield Happening(attempt.ended, kind, told.row.id, text)


def _end(attempt: Attempt) -> tuple[str, str]:
    """The kind of an end, and its words."""
    if not attempt.reason:
        return ("done", "done") if attempt.exit_code in (0, None) else ("failed", f"exit code {attempt.exit_code}")
    kind = _KINDS.get(attempt.reason, "failed")
    code = f" (exit code {attempt.exit_code})" if kind == "failed" and attempt.exit_code is not None else ""
    return kind, f"{attempt.reason}{code}"


# --------------------------------------------------------------------------------------------------- between two looks


@dataclass(frozen=True)
class Seen:
    """Nodes and hosts at one look. `nodes`: every name that was seen so far, with the id of the newest node of it;
    `here`: those that are there now; `silent`: hosts that don't answer, and why."""

    nodes: Mapping[str, str] = field(default_factory=dict[str, str])
    here: frozenset[str] = frozenset()
    silent: Mapping[str, str] = field(default_factory=dict[str, str])
    heard: frozenset[str] = frozenset()


def seen(before: Seen | None, nodes: Iterable[Node], silent: Mapping[str, str], heard: Iterable[str]) -> Seen:
    """This look, with the names that were known before."""
    there = {node.name: node.uid for node in nodes if node.state not in GONE_STATES}
    return Seen((dict(before.nodes) if before else {}) | there, frozenset(there), silent, frozenset(heard))


def between(before: Seen | None, now: Seen, preempted: frozenset[str], at: datetime) -> Iterator[Happening]:
    """What happened to nodes and hosts since the look `before`; the first look tells of nothing.

    `preempted` are nodes of which the cloud says so.
    """
    if before is None:
        return
    for name in sorted(before.here - now.here):
        if name in preempted:
            yield Happening(at, "preempted", name, "the cloud took it away")
        else:
            yield Happening(at, "gone", name, "it is not there any more")
    for name, uid in sorted(now.nodes.items()):
        if name in now.here and before.nodes.get(name) != uid:
            known = name in before.nodes
            text = "made anew, another machine" if known else "a new node"
            yield Happening(at, "anew" if known else "added", name, text)
    for host in sorted(now.silent.keys() & before.heard):
        yield Happening(at, "silent", host, now.silent[host])
    for host in sorted(now.heard & before.silent.keys()):
        yield Happening(at, "heard", host, "it answers again")


def newest(happenings: Iterable[Happening]) -> tuple[Happening, ...]:
    """The newest of them, newest first; what is told twice counts once."""
    return tuple(heapq.nlargest(MOST, set(happenings), key=lambda one: (one.at, one.subject, one.kind)))
