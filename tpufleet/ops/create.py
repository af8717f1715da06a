"""Make the fleet equal the file, from nodes to code."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpufleet.actions import Plan
from tpufleet.errors import TpufleetError
from tpufleet.model import Code, Host, HostView, Node, NodeState, Spec
from tpufleet.ops import accounts
from tpufleet.ops.apply import CREATE_LIMIT_S, apply
from tpufleet.ops.code import Synced, resolve, sync
from tpufleet.ops.fleet import Fleet, values_or_raise
from tpufleet.ops.prepare import Preparation, preparation
from tpufleet.text import natural

PEOPLE_EVERY_S = 10.0  # while nodes are waited for


@dataclass(frozen=True)
class Created:
    """The fleet after `create`; `changed` is False when everything was so before."""

    views: tuple[HostView, ...]
    changed: bool


def resolve_code(spec: Spec, directory: Path) -> Code | None:
    """The commit the file means now, if it names a repository; asked before anything is made for it."""
    return resolve(spec.code, directory) if spec.code else None


def create(
    fleet: Fleet,
    plan: Plan,
    nodes: Sequence[Node],
    code: Code | None,
    key_line: str,
    *,
    limit_s: float = CREATE_LIMIT_S,
) -> Created:
    """Carry out the plan, and make each host ready and bring it to the commit as soon as its node is there.

    `nodes` are those that the plan was made from. Nodes that can't be had don't keep the others from being used:
    their error is raised at the end. People get their accounts when it is known which hosts there are; where that
    takes long, first on those that are ready.
    """
    touched = {(action.name, action.zone) for action in plan.actions}
    with preparation(fleet, code) as hosts:
        for node in nodes:
            if node.state is NodeState.READY and (node.name, node.zone) not in touched:
                hosts.of_old(node)
        with _people_meanwhile(fleet, hosts):
            failed = _failure_of(lambda: apply(fleet, plan, key_line, hosts.of_new, limit_s=limit_s))
            outcomes = hosts.finish()
    applied = accounts.bring(fleet, [outcome.value.view for outcome in outcomes if outcome.value])
    if failed:
        raise failed
    prepared = values_or_raise(fleet, outcomes, "hosts could not be prepared", told=True)
    values_or_raise(fleet, applied.outcomes, "hosts have not got their accounts", told=True)
    changed = bool(plan.actions) or applied.changed or any(item.synced and _is_news(item.synced) for item in prepared)
    in_order = sorted(prepared, key=lambda item: natural(item.view.host.name))  # not as they came
    return Created(tuple(item.view for item in in_order), changed)


@contextlib.contextmanager
def _people_meanwhile(fleet: Fleet, hosts: Preparation) -> Generator[None]:
    """Now and then, accounts on the hosts that have become ready: the next node may be hours away."""
    over = threading.Event()

    def bring() -> None:
        told: tuple[HostView, ...] = ()
        while not over.wait(PEOPLE_EVERY_S):
            if hosts.ready != told:
                told = hosts.ready
                with contextlib.suppress(TpufleetError):  # it was said, and is tried again at the end
                    accounts.bring(fleet, told)

    thread = threading.Thread(target=bring, name="people", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
    thread.join()  # not when interrupted: Ctrl-C waits for no host


def _is_news(synced: Synced) -> bool:
    return synced.fetched or synced.setup == "ran"


def _failure_of(work: Callable[[], None]) -> TpufleetError | None:
    try:
        work()
    except TpufleetError as error:
        return error
    return None


def bring_code(fleet: Fleet, hosts: Sequence[Host], code: Code, *, restore: bool = False) -> tuple[Synced, ...]:
    """Every host at the commit; raises for those that can't be brought there, after all were tried."""
    return values_or_raise(fleet, sync(fleet, hosts, code, restore=restore), "hosts have not got the code")
