"""`tpufleet people check`: what each person will find, before they come."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import session
from tpufleet.cli.people_list import opened
from tpufleet.cli.session import Session
from tpufleet.errors import PartialFailure, UsageError
from tpufleet.text import counted, size

if TYPE_CHECKING:
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ops.people import People
    from tpufleet.ops.visits import Visit

COLUMNS = ("name", "seat", "login", "chip", "pinned", "disk", "clone", "wrong")
KEY_LIFE = timedelta(minutes=10)
AGAIN = "tpufleet people apply, then again"


def check(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Default: everybody.", autocompletion=completion.people),
    ] = None,
) -> None:
    """Log in as each person would, and look around.

    At login, chip, pin, disk, clone, and whether the command is there that the card's training begins with; with a
    throw-away key that enters every account for ten minutes at most, and is taken out again at the end.

    Example: tpufleet people check
    """
    this = session(context)
    with opened(this, "people check", dry_run=False) as people:
        chosen = [people.known(name).name for name in dict.fromkeys(names or [])] or [p.name for p in people.persons]
        if not chosen:
            raise UsageError("there is nobody in the list", hint="tpufleet people add NAME KEY")
        with this.fleet("people check") as fleet:
            visits, silent = _visit(this, fleet, people, chosen)
    seen = {visit.name for visit in visits}
    missing = [_missing(people, name, silent) for name in chosen if name not in seen]
    without = {one.name: one.why for one in missing}
    this.out.table(COLUMNS, [_row(visit) for visit in visits])
    for name, why in without.items():
        this.out.note(f"{name}: {why}")
    this.out.data(
        fleet=people.spec.fleet,
        people=[{**dataclasses.asdict(visit), "faults": list(visit.faults)} for visit in visits],
        without=without,
    )
    wrong = [(f"{visit.name} {visit.faults[0]}", AGAIN) for visit in visits if visit.faults]
    wrong += [(f"{one.name}: {one.why}", one.hint) for one in missing if one.hint]
    if wrong:
        said, hint = wrong[0]
        of_all = f"{len(wrong)} of {counted(len(chosen), 'person', 'people')}"
        raise PartialFailure(f"something is wrong for {of_all}: {said}", hint=hint)


def _visit(this: Session, fleet: Fleet, people: People, names: Sequence[str]) -> tuple[list[Visit], Collection[str]]:
    """What people find, and the hosts that can't be reached, which nobody visits."""
    from tpufleet.cards import Card
    from tpufleet.cli.people_apply import say_moved
    from tpufleet.config.edits import rfc3339
    from tpufleet.ops.accounts import apply
    from tpufleet.ops.accounts_wanted import clone_of
    from tpufleet.ops.cards import training
    from tpufleet.ops.observe import find_nodes, hosts_of
    from tpufleet.ops.visits import Typed, temporary, throw_away_key, visit

    nodes = find_nodes(fleet)
    hosts = {str(host.name): host for host in hosts_of(fleet, nodes)}
    clone, told = clone_of(people.spec, people.paths.directory), training(people)
    typed = Typed(
        str(clone["name"]) if clone else None,
        told.get("train", Card.train)[0],
        told.get("workdir", Card.workdir),
        setup=bool(told.get("setup")),
    )
    with temporary() as directory:
        visitor = throw_away_key(directory)
        until = rfc3339(datetime.now(UTC) + KEY_LIFE)
        try:
            applied = apply(fleet, people, nodes=nodes, visitor={"key": visitor.line, "until": until})
            say_moved(this, people, applied.moved)
            seats = {people.known(name).name: seat for name in names if (seat := people.seating.seats.get(name))}
            there = {name: seat for name, seat in seats.items() if seat.host in hosts.keys() - applied.missed.keys()}
            return visit(fleet, there, hosts, visitor, typed), applied.missed.keys()
        finally:
            apply(fleet, people, nodes=nodes)


class _Missing(NamedTuple):
    """Somebody who can't be visited; without a hint that is as it should be."""

    name: str
    why: str
    hint: str | None


def _missing(people: People, name: str, silent: Collection[str]) -> _Missing:
    seat = people.seating.seats.get(name)
    if seat and seat.host in silent:
        return _Missing(name, f"{seat.host}, where they sit, can't be reached", AGAIN)
    if seat:
        return _Missing(name, f"{seat.host}, where they sit, is not ready", "tpufleet create")
    if why := people.seating.standing.get(name):
        return _Missing(name, f"no seat: {why}", AGAIN)
    return _Missing(name, "no seat: their time is over", None)


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
