"""`tpufleet watch`: keep nodes and runs as they are wanted, for as long as it is on."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli.arguments import duration, session
from tpufleet.cli.follow import States, raise_for_failed, summary
from tpufleet.cli.output import Output
from tpufleet.cli.pace import Pace
from tpufleet.cli.render import MARKS, NODE_COLUMNS, age, node_state
from tpufleet.cli.run_table import run_table
from tpufleet.cli.session import Session
from tpufleet.cli.tables import Fitted
from tpufleet.errors import UsageError
from tpufleet.text import clean, lasted, natural

if TYPE_CHECKING:
    from tpufleet.model import Event
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ops.watch import Seen

LAST_EVENTS = 8

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
        _picture(this.out, fleet, seconds, moving=not once) as show,
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
def _picture(out: Output, fleet: Fleet, seconds: float, *, moving: bool) -> Generator[Show]:
    """A table that moves, on a terminal; elsewhere only the changes are said, as they come."""
    if not (out.live and moving):
        yield lambda _fleet, _seen: None
        return
    from tpufleet.cli.live import moving as moving_picture

    view = _View()
    fleet.emit = view.events.append
    with moving_picture(out.console(), view.draw) as refresh:

        def show(fleet: Fleet, seen: Seen) -> None:
            view.looked(fleet, seen, time.monotonic() + seconds)
            refresh()

        yield show


class _View:
    """What `watch` shows on a terminal: nodes, runs, the last events, and when it looks again."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=LAST_EVENTS)
        self._pace = Pace()
        self._seen: Seen | None = None
        self._home: dict[str, int | None] = {}
        self._due = 0.0

    def looked(self, fleet: Fleet, seen: Seen, due: float) -> None:
        """A look has ended and the next one is `due` (monotonic seconds); each run with the step that is home: what
        came after it would be lost now."""
        from tpufleet.ops.mirror import with_mirrored

        self._pace.look(seen.states, time.monotonic())
        states = with_mirrored(fleet, list(seen.states.values()))
        self._home = {str(state["id"]): state["mirrored_step"] for state in states}
        self._seen, self._due = seen, due

    def draw(self, whole: bool) -> Any:
        from rich.console import Group
        from rich.text import Text

        from tpufleet.cli.live import STYLES

        events = [
            Text(clean(f"{MARKS[event.state]} {event.subject}: {event.text}"), STYLES[event.state], no_wrap=True)
            for event in list(self.events)
        ]
        if self._seen is None:
            return Group(Text("looking …", "dim"), *events)
        nodes = [
            (node.name, node.accelerator, node.zone, node_state(node), age(node.created), "")
            for node in self._seen.there.nodes
        ]
        states = [self._seen.states[run] for run in sorted(self._seen.states, key=natural)]
        table = Fitted(NODE_COLUMNS, nodes) if nodes else Text("no nodes", "yellow")
        beside = max(1, len(nodes)) + len(events) + 6
        runs = Fitted(*run_table(states, self._pace, home=self._home), beside=None if whole else beside)
        said = Text(clean(summary(states, self._pace) if states else "no runs"), no_wrap=True)
        left = self._due - time.monotonic()
        coming = "" if whole else f"next look in {lasted(left)}" if left > 0 else "looking …"
        return Group(table, Text(""), *([runs] if states else []), said, Text(""), *events, Text(coming, "dim"))


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
