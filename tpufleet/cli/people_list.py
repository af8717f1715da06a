"""The list of people for a command: opened with its options, and answered from."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING

from tpufleet.cli.session import Session

if TYPE_CHECKING:
    from tpufleet.ops.people import People


@contextlib.contextmanager
def opened(session: Session, command: str, *, dry_run: bool) -> Generator[People]:
    """The people; whoever else works on them is waited for, and named."""
    from tpufleet.ops.people import opened

    def waiting(who: str) -> None:
        session.out.note(f"waiting for {who}")

    with opened(session.config, command, dry_run=dry_run, waiting=waiting) as people:
        yield people


def answer(session: Session, people: People, names: Collection[str], *, changed: bool, apply: bool) -> None:
    """The command's JSON object: those it was about. The hosts are told at once if that is what `apply` wants."""
    from tpufleet.cli import people_apply

    told = people_apply.Told()
    if apply and not people.dry_run:
        told = people_apply.at_once(session, people, "people apply", names)
        for name in names:
            if (seat := people.seating.seats.get(name)) and name not in people.moved:
                session.out.line(f"{name} sits at {seat}; card: tpufleet people card {name}")
    else:
        people_apply.say_moved(session, people, people.moved)
    if changed and people.memory.told and not apply and not people.dry_run:
        session.out.note("the hosts don't know yet: tpufleet people apply")
    about = people.fields(names)
    session.out.data(file=str(people.roster.path), people=about, changed=changed, dry_run=people.dry_run, **told.fields)
    told.raise_for_missed()
