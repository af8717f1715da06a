"""`tpufleet workshop`: what belongs to an evening with people."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli.arguments import DryRun, Yes, help_alone, session
from tpufleet.cli.delete import proven
from tpufleet.cli.people_list import opened
from tpufleet.cli.session import Session
from tpufleet.errors import PartialFailure
from tpufleet.model import Provider
from tpufleet.text import counted, listed, size

if TYPE_CHECKING:
    from tpufleet.model import HostView, Node
    from tpufleet.ops.delete import Proof
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ops.people import People
    from tpufleet.ops.workshop import Closed

app = typer.Typer(
    name="workshop",
    help="An evening with people: its end. (Its beginning: create, board --sign-up, people card, people check.)",
    rich_markup_mode=None,
    invoke_without_command=True,
)


app.callback()(help_alone)


@app.command("end")
def end(
    context: typer.Context,
    anyway: Annotated[bool, typer.Option("--anyway", help="Delete the fleet also if something isn't home.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Close all accounts, bring home what people agreed to leave, delete the fleet, and prove it.

    Of who agreed (`share`): checkpoints, completions, all that was written to ~/runs, and how they changed the code.
    Of all others nothing. Runs are collected as `collect` does. The list of people is emptied; a copy comes along.
    May be typed again at any moment; hosts of an inventory stay.

    Example: tpufleet workshop end --dry-run

    Example: tpufleet workshop end --yes
    """
    from tpufleet.ops import workshop
    from tpufleet.ops.observe import find_nodes, hosts_of, probe

    this = session(context)
    with (
        contextlib.ExitStack() as afterwards,
        this.fleet("workshop end", dry_run=dry_run) as fleet,
        this.changing(fleet),
    ):
        nodes = find_nodes(fleet)
        with opened(this, "workshop end", dry_run=dry_run) as people:
            views = probe(fleet, hosts_of(fleet, nodes))
            if dry_run:
                _foresee(this, people, nodes, views)
                return
            this.out.confirm(_question(people, nodes, views), yes=yes)
            copy = workshop.empty(people)
            closed = workshop.close(fleet, people, nodes, views)
        afterwards.callback(_tell, this, closed)  # when the live view is over, also where the fleet has to stay
        if not anyway:
            workshop.raise_unless_home(closed)
        proof = _delete(fleet)
        kept = fleet.spec.cloud.provider is Provider.INVENTORY
        if not any(item.nodes for item in proof):
            workshop.forget(fleet.paths, hosts_stay=kept)
    for item in proof:
        this.out.line(proven(item, fleet.spec.fleet))
    this.out.data(
        fleet=fleet.spec.fleet,
        dry_run=False,
        home=str(fleet.paths.belongings),
        list=str(copy) if copy else None,
        revoked=sorted({account.name for _, account in closed.applied.accounts if account.state == "revoked"}),
        missed={host: error.message for host, error in closed.applied.missed.items()},
        people=closed.brought.people,
        files=closed.brought.files,
        bytes=closed.brought.bytes,
        runs=closed.collected.runs,
        notes=[*closed.brought.notes, *closed.collected.notes],
        problems=closed.problems,
        proof=[dataclasses.asdict(item) for item in proof],
    )
    _raise_for_left(fleet, closed, proof)


def _question(people: People, nodes: Sequence[Node], views: Sequence[HostView]) -> str:
    from tpufleet.ops.workshop import who_is_there

    there = who_is_there(people, views)
    kept = people.spec.cloud.provider is Provider.INVENTORY
    names = "the hosts stay" if kept else f"deleted: {listed([str(node.name) for node in nodes]) or 'nothing'}"
    agreed = counted(sum(there.values()), "person", "people")
    return f"{counted(len(there), 'account')} closed; what {agreed} agreed to leave comes home; {names}."


def _foresee(this: Session, people: People, nodes: Sequence[Node], views: Sequence[HostView]) -> None:
    from tpufleet.ops.workshop import who_is_there

    there = who_is_there(people, views)
    this.out.line(_question(people, nodes, views))
    this.out.data(
        fleet=people.spec.fleet,
        dry_run=True,
        revoked=sorted(there),
        agreed=sorted(name for name, share in there.items() if share),
        nodes=[str(node.name) for node in nodes],
    )


def _tell(this: Session, closed: Closed) -> None:
    revoked = {account.name for _, account in closed.applied.accounts if account.state == "revoked"}
    this.out.line(f"{counted(len(revoked), 'account')} closed")
    brought = closed.brought
    files = f"{counted(brought.files, 'new file')} ({size(brought.bytes)})"
    this.out.line(f"{counted(len(brought.people), 'person', 'people')} agreed: {files} in {closed.home}")
    for note in (*brought.notes, *closed.collected.notes):
        this.out.note(f"stays where it is: {note}")
    for problem in closed.problems:
        this.out.note(f"not home: {problem}")
    for host, error in closed.applied.missed.items():
        this.out.note(f"{host} was not told to close accounts: {error.message}")


def _delete(fleet: Fleet) -> tuple[Proof, ...]:
    from tpufleet import report
    from tpufleet.ops.delete import delete
    from tpufleet.ops.ledger import remember
    from tpufleet.ops.observe import survey
    from tpufleet.plan import plan_delete

    if (fleet.paths.artifacts / "runs.json").exists():
        report.write(fleet.paths.artifacts)
    if fleet.spec.cloud.provider is Provider.INVENTORY:
        return ()
    there = survey(fleet.spec, fleet.cloud, fleet.zones)
    remember(fleet, there.nodes)
    return delete(fleet, plan_delete(there, ()), everywhere=not fleet.journal.is_kept)


def _raise_for_left(fleet: Fleet, closed: Closed, proof: tuple[Proof, ...]) -> None:
    from tpufleet.ops.delete import raise_unless_empty

    raise_unless_empty(proof)
    missed: dict[str, Any] = closed.applied.missed
    if missed and fleet.spec.cloud.provider is Provider.INVENTORY:
        raise PartialFailure(
            f"accounts are still open on {listed(list(missed))}", hint="tpufleet people apply, when they can be reached"
        )
