"""Pure: what `watch` does about nodes: those that are gone, bad, over their ttl, or that a person took down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpufleet.actions import Action, CreateNode, DeleteNode
from tpufleet.model import HostView, Node, NodeState, Snapshot, Spec
from tpufleet.names import Duration
from tpufleet.plan import plan_create, plan_expired, wanted_nodes

UNWELL_LIMIT_S = 300.0  # how long a node may be unhealthy and silent before it is made anew
SHORTEST_LIFE_S = 60.0  # a node that would have to go sooner isn't made anew
PASSING_HEALTH = ("HEALTHY", "HEALTH_UNSPECIFIED", "UNHEALTHY_MAINTENANCE", "")  # maintenance ends by itself

# Marks of a node in the journal.
EXPIRES = "expires"  # the end of its ttl, which its name keeps when it is made anew
REMADE = "remade"  # the id of the bad machine that was replaced: once is enough
UNWELL = "unwell"  # "ID since": unhealthy and silent

Marks = Mapping[tuple[str, str], str]


@dataclass
class Mending:
    """What to do about nodes, what to remember (None: to forget), what to say, and which hosts get no runs."""

    actions: list[Action] = field(default_factory=list[Action])
    marks: dict[tuple[str, str], str | None] = field(default_factory=dict[tuple[str, str], str | None])
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    bad_hosts: set[str] = field(default_factory=set[str])
    left: frozenset[str] = frozenset()  # the nodes of the file that are still to be kept

    def note(self, subject: str, text: str) -> None:
        self.notes.append((subject, text))


def mend(spec: Spec, there: Snapshot, marks: Marks, taken_down: Collection[str], now: float) -> Mending:
    """What the fleet needs at `now` (Unix time) to be as the file says, but for what is over and what people took."""
    mending = Mending()
    ends = _ends(there, marks, mending)
    over = {name for name, end in ends.items() if end <= now}
    hardly = {name for name, end in ends.items() if end <= now + SHORTEST_LIFE_S}
    mending.actions += plan_expired(there, now).actions
    expiring = {action.name for action in mending.actions}
    present = {node.name for node in there.nodes} | {queued.node for queued in there.queued}
    wanted = {str(name) for name in wanted_nodes(spec)}
    left_out = over | {name for name in taken_down if name not in present}
    mending.left = frozenset(wanted - left_out)
    for name in sorted(wanted & set(taken_down) - present):
        mending.note(name, "was taken down by a person: left out until tpufleet create")
    plan = plan_create(spec, there)
    for conflict in plan.conflicts:
        mending.note("plan", conflict)
    doomed = _bad(there, marks, expiring, now, mending)
    for action in plan.actions:
        if isinstance(action, DeleteNode) and action.surplus and action.name not in wanted:
            mending.note(action.name, "is not in the file; tpufleet create deletes it")
        elif action.name in expiring or (not isinstance(action, DeleteNode) and action.name in left_out | hardly):
            continue
        else:
            mending.actions.append(_within_its_time(action, ends.get(action.name), now))
    for name, why in doomed.items():
        if name in wanted - hardly and not any(action.name == name for action in mending.actions):
            mending.actions += [
                _within_its_time(action, ends.get(name), now) for action in _anew(spec, there, name, why)
            ]
    return mending


def _ends(there: Snapshot, marks: Marks, mending: Mending) -> dict[str, float]:
    """When each name's time is over: as its node says, else as the last one of that name said."""
    ends = {name: float(value) for (name, mark), value in marks.items() if mark == EXPIRES}
    for node in there.nodes:
        known = ends.pop(node.name, None)
        if node.expires is not None:
            ends[node.name] = node.expires
        if node.expires != known:
            mending.marks[node.name, EXPIRES] = None if node.expires is None else f"{node.expires:.0f}"
    return ends


def _bad(there: Snapshot, marks: Marks, expiring: Collection[str], now: float, mending: Mending) -> dict[str, str]:
    """The nodes to be made anew, and why. A second bad machine of one name is left alone: another won't be better."""
    doomed: dict[str, str] = {}
    for node in there.nodes:
        if node.state is not NodeState.READY or node.name in expiring:
            continue
        views = [view for view in there.hosts if view.host.node == node.name and view.host.zone == node.zone]
        why = _fault(views) or _unwell(node, views, marks, now, mending)
        if why is None:
            continue
        mending.bad_hosts |= {str(view.host.name) for view in views}
        remade = marks.get((node.name, REMADE))
        people = sorted(
            {str(name) for view in views for chip in view.chips if (name := chip.get("person") or chip.get("seat"))}
        )
        if remade not in (None, node.uid):
            mending.note(node.name, f"{why}, again after it was made anew: it gets no runs")
        elif people:
            mending.note(node.name, f"{why}; not made anew while {', '.join(people)} works or sits there")
        else:
            mending.marks[node.name, REMADE] = node.uid
            doomed[node.name] = why
    return doomed


def _fault(views: Sequence[HostView]) -> str | None:
    """What is wrong with a node by what its hosts say."""
    for view in views:
        if view.probe and len(view.chips) < view.host.chips:
            return f"{view.host.name} shows {len(view.chips)} of {view.host.chips} chips"
        if view.probe and (suspect := view.probe.get("suspect")):
            return f"{view.host.name}: {suspect}"
    return None


def _unwell(node: Node, views: Sequence[HostView], marks: Marks, now: float, mending: Mending) -> str | None:
    """Why a node is given up that the cloud calls unhealthy and that can't be heard, after some patience."""
    since = marks.get((node.name, UNWELL))
    if node.health in PASSING_HEALTH or any(view.probe for view in views):
        if since is not None:
            mending.marks[node.name, UNWELL] = None
        return None
    uid, _, begun = (since or "").partition(" ")
    if uid != node.uid:
        mending.marks[node.name, UNWELL] = f"{node.uid} {now:.0f}"
        return None
    return f"{node.health} and silent" if now - float(begun) >= UNWELL_LIMIT_S else None


def _anew(spec: Spec, there: Snapshot, name: str, why: str) -> list[Action]:
    """Deletion and creation, as for a node that is gone."""
    node = next(node for node in there.nodes if node.name == name)
    without = replace(
        there,
        nodes=tuple(other for other in there.nodes if other.name != name),
        queued=tuple(queued for queued in there.queued if queued.node != name),
    )
    creation = [action for action in plan_create(spec, without).actions if action.name == name]
    return [DeleteNode(name, node.zone, why, queued=node.queued), *creation]


def _within_its_time(action: Action, end: float | None, now: float) -> Action:
    """A node that is made anew ends when the one before it would have."""
    if not isinstance(action, CreateNode) or end is None:
        return action
    return replace(action, pool=replace(action.pool, ttl=Duration(f"{min(9_999_999, int(end - now))}s")))
