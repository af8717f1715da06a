"""`tpufleet watch`: keep nodes and runs as they are wanted, for as long as it is on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli.arguments import duration, session
from tpufleet.cli.follow import States, raise_for_failed, summary
from tpufleet.cli.output import Output, rich_table
from tpufleet.cli.render import node_state, run_rows
from tpufleet.cli.session import Session
from tpufleet.errors import UsageError
from tpufleet.text import clean, natural

if TYPE_CHECKING:
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ops.watch import Seen

LAST_EVENTS = 8
COLUMNS = ("run", "state", "chip", "step", "metrics", "home")

Show = Callable[["Fleet", "Seen"], None]


def watch(
    context: typer.Context,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="How often to look: 30s, 5m.")] = "30s",
    once: Annotated[bool, typer.Option("--once", help="One look, and what follows from it; for cron.")] = False,
    until_done: Annotated[
        bool,
        typer.Option("--until-done", help="End when every run has ended; exit code 7 for failures not told before."),
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Write a systemd user unit that keeps it on; print how to start it.")
    ] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Remove that unit.")] = False,
) -> None:
    """Keep the fleet as the file says, and its runs going.

    Nodes that were preempted, suspended or have vanished are made anew; their runs go on from the newest checkpoint
    that came home, or begin again where there is none. Meanwhile everything is mirrored home. Nodes whose ttl is over
    are deleted. Ctrl-C ends the watching, not the runs.

    Example: tpufleet watch --until-done && tpufleet collect && tpufleet delete --yes

    Example: tpufleet watch --install
    """
    this = session(context)
    if sum((once, until_done, install, uninstall)) > 1:
        raise UsageError("--once, --until-done, --install and --uninstall exclude each other")
    if install or uninstall:
        from tpufleet.cli.unit import install as write, uninstall as remove

        (write if install else remove)(this, interval)
        return
    if this.out.as_json and not (once or until_done):
        raise UsageError(
            "--json gives one object at the end and watch has no end: choose one", hint="tpufleet --json watch --once"
        )
    seconds = duration("--interval", interval).seconds
    seen, news = _watch(this, seconds, once=once, until_done=until_done)
    ordered = [seen.states[run] for run in sorted(seen.states, key=natural)]
    if until_done or once:
        this.out.line(summary(ordered) if ordered else "no runs")
    this.out.data(**_fields(this, seen, ordered))
    raise_for_failed(news)


def _watch(this: Session, seconds: float, *, once: bool, until_done: bool) -> tuple[Seen, States]:
    """Look until the end; returns the last look, and the ends of the runs that are news where they were waited for."""
    from tpufleet.ops.failures import untold
    from tpufleet.ops.watch import Watch
    from tpufleet.state.lock import locked

    paths = this.paths(this.spec())
    paths.ensure_state()
    with (
        locked(paths.watch_lock, "watch", wait_s=0, waiting=lambda _: None),
        this.fleet("watch", start=True) as fleet,
        _picture(this.out, fleet, moving=not once) as show,
    ):
        watching = Watch(fleet, this.access(fleet.spec).key_line(), this.spec)
        if once:
            return watching.once(), {}
        while True:
            seen = watching.step()
            show(fleet, seen)
            if not seen.left:
                fleet.say(fleet.spec.fleet, "nothing is left to watch: its nodes' time is over, or they were deleted")
            ends = seen.ended if until_done else None
            if ends is not None or not seen.left:
                return seen, untold(fleet.journal, ends or {})
            watching.wait(seconds)


@contextlib.contextmanager
def _picture(out: Output, fleet: Fleet, *, moving: bool) -> Generator[Show]:
    """A table that moves, on a terminal; elsewhere only the changes are said, as they come."""
    if not (out.live and moving):
        yield lambda _fleet, _seen: None
        return
    from collections import deque

    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from tpufleet.cli.live import STYLES
    from tpufleet.model import Event

    events: deque[Event] = deque(maxlen=LAST_EVENTS)
    table: list[Any] = []

    def drawn() -> Any:
        said = [Text(clean(f"{event.subject}: {event.text}"), STYLES[event.state]) for event in list(events)]
        return Group(*table, *said)

    def show(fleet: Fleet, seen: Seen) -> None:
        table[:] = [_nodes_line(seen), rich_table(COLUMNS, _rows(fleet, seen), numbers=("step", "home")), Text("")]

    fleet.emit = events.append
    with Live(console=out.console(), get_renderable=drawn, refresh_per_second=4):
        yield show


def _nodes_line(seen: Seen) -> str:
    return clean("  ".join(f"{node.name} {node_state(node)}" for node in seen.there.nodes) or "no nodes")


def _rows(fleet: Fleet, seen: Seen) -> list[tuple[str, ...]]:
    """The runs, each with the step that is home: what came after it would be lost now."""
    from tpufleet.ops.mirror import with_mirrored

    states = with_mirrored(fleet, [seen.states[run] for run in sorted(seen.states, key=natural)])
    return [
        tuple(clean(cell) for cell in (*row, "" if state["mirrored_step"] is None else str(state["mirrored_step"])))
        for row, state in zip(run_rows(states), states, strict=True)
    ]


def _fields(this: Session, seen: Seen, ordered: list[Any]) -> dict[str, Any]:
    from tpufleet.ops.home import mirrored_step

    spec = this.spec()
    home = this.paths(spec).runs
    return {
        "fleet": spec.fleet,
        "nodes": [{"name": node.name, "zone": node.zone, "state": node.state} for node in seen.there.nodes],
        "runs": [{**state, "mirrored_step": mirrored_step(home / str(state["id"]))} for state in ordered],
        "lost": list(seen.lost),
    }
