"""`tpufleet people check`: what each person will find, before they come."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.cli.arguments import session
from tpufleet.cli.people_list import opened
from tpufleet.errors import PartialFailure, UsageError
from tpufleet.text import counted, size

if TYPE_CHECKING:
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ops.people import People
    from tpufleet.ops.visits import Visit

COLUMNS = ("name", "seat", "login", "chip", "pinned", "disk", "clone", "wrong")
KEY_LIFE = timedelta(minutes=10)


def check(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Default: everybody.")] = None,
) -> None:
    """Log in as each person would, and look around.

    At login, chip, pin, disk and clone; with a throw-away key that enters every account for ten minutes at most, and is
    taken out again at the end.

    Example: tpufleet people check
    """
    this = session(context)
    with opened(this, "people check", dry_run=False) as people:
        chosen = [people.known(name).name for name in dict.fromkeys(names or [])] or [p.name for p in people.persons]
        if not chosen:
            raise UsageError("there is nobody in the list", hint="tpufleet people add NAME KEY")
        with this.fleet("people check") as fleet:
            visits = _visit(fleet, people, chosen)
    seen = {visit.name for visit in visits}
    without = {str(name): _why_not(people, name) for name in chosen if name not in seen}
    this.out.table(COLUMNS, [_row(visit) for visit in visits])
    for name, why in without.items():
        this.out.note(f"{name}: {why}")
    this.out.data(
        fleet=people.spec.fleet,
        people=[{**dataclasses.asdict(visit), "faults": list(visit.faults)} for visit in visits],
        without=without,
    )
    wrong = [visit for visit in visits if visit.faults]
    if wrong or without:
        said = f"{wrong[0].name} {wrong[0].faults[0]}" if wrong else "{}: {}".format(*next(iter(without.items())))
        raise PartialFailure(
            f"something is wrong for {len(wrong) + len(without)} of {counted(len(chosen), 'person', 'people')}: {said}",
            hint="tpufleet people apply, then again",
        )


def _visit(fleet: Fleet, people: People, names: Sequence[str]) -> list[Visit]:
    from tpufleet.config.edits import rfc3339
    from tpufleet.ops.accounts import apply
    from tpufleet.ops.accounts_wanted import clone_of
    from tpufleet.ops.observe import find_nodes, hosts_of
    from tpufleet.ops.visits import temporary, throw_away_key, visit

    nodes = find_nodes(fleet)
    hosts = {str(host.name): host for host in hosts_of(fleet, nodes)}
    with temporary() as directory:
        visitor = throw_away_key(directory)
        until = rfc3339(datetime.now(UTC) + KEY_LIFE)
        try:
            apply(fleet, people, nodes=nodes, visitor={"key": visitor.line, "until": until})
            seats = {people.known(name).name: seat for name in names if (seat := people.seating.seats.get(name))}
            there = {name: seat for name, seat in seats.items() if seat.host in hosts}
            clone = clone_of(people.spec, people.paths.directory)
            return visit(fleet, there, hosts, visitor, str(clone["name"]) if clone else None)
        finally:
            apply(fleet, people, nodes=nodes)


def _why_not(people: People, name: str) -> str:
    if seat := people.seating.seats.get(name):
        return f"{seat.host}, where they sit, is not ready"
    return f"no seat: {people.seating.standing.get(name, 'their time is over')}"


def _row(visit: Visit) -> tuple[str, ...]:
    return (
        visit.name,
        visit.seat,
        _word(visit.login),
        _word(visit.chip),
        _word(visit.pinned),
        "" if visit.free is None else size(visit.free),
        "" if visit.clone is None else _word(visit.clone),
        "; ".join(visit.faults),
    )


def _word(fine: bool) -> str:
    return "yes" if fine else "no"
