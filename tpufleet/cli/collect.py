"""`tpufleet collect`: everything comes home, and the report is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import DryRun, session, within
from tpufleet.cli.output import Output
from tpufleet.cli.session import Session
from tpufleet.errors import PartialFailure

if TYPE_CHECKING:
    from tpufleet.ops.choose import Wish
    from tpufleet.ops.collect import Collected

AGAIN = "run the same command again; a checkpoint that is broken on its host stays there"
SAY_LIVE_S = 0.2  # on a terminal a line is replaced, elsewhere each is one more
SAY_PLAIN_S = 5.0
MOST_BEST = 100_000


def collect(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|JOB...]",
            help="Only these runs; default: all.",
            autocompletion=completion.runs_and_jobs,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Only logs, metrics, checkpoints, completions or artifacts; repeatable.",
            autocompletion=completion.one_of("logs", "metrics", "checkpoints", "completions", "artifacts"),
        ),
    ] = None,
    best: Annotated[
        int | None, typer.Option(metavar="N", help="Checkpoints of the N runs with the lowest loss only, the newest.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs alive since then: 8h, 2026-11-21T18:00 (UTC).")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read again what is home; what is damaged comes again.")
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Also as TensorBoard's event files, below artifacts/FLEET/tensorboard."),
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Bring everything home, verified, and write the report.

    Logs, metrics, completions and checkpoints of all runs, from all hosts side by side.
    What is home already is not sent again; unfinished runs come as they stand.

    Example: tpufleet collect

    Example: tpufleet collect gpt --best 3 --dry-run
    """
    from tpufleet.ops.choose import Wish, kinds, moment

    wish = Wish(
        runs or (),
        kinds(only or ()),
        within("--best", best, (1, MOST_BEST)),
        moment(since, datetime.now(UTC)) if since is not None else None,
        verify,
    )
    this = session(context)
    if dry_run:
        _look(this, wish)
    else:
        _bring(this, wish, tensorboard=tensorboard)


def _bring(this: Session, wish: Wish, *, tensorboard: bool) -> None:
    from tpufleet import report
    from tpufleet.ops.collect import collect as bring, summary
    from tpufleet.ops.exports import export
    from tpufleet.ops.ledger import remember
    from tpufleet.ops.observe import observe
    from tpufleet.ops.tensorboard import Kit

    begun = time.monotonic()
    kit = Kit.load() if tensorboard else None  # that it is missing is said before hours of transfer, not after
    with this.fleet("collect") as fleet, this.changing(fleet):
        there = observe(fleet)
        remember(fleet, there.nodes)
        views = there.hosts
        brought = bring(fleet, views, wish.among(views), say_every_s=SAY_LIVE_S if this.out.live else SAY_PLAIN_S)
        fleet.say("report", "writing")
        page = report.write(fleet.paths.artifacts)
        fleet.say("report", str(page), "done")
        exported = export(fleet.paths.artifacts, kit)
    this.out.line(summary(brought))
    _tell_missing(this.out, brought)
    this.out.line(f"report: {page}")
    for name, path in exported.items():
        this.out.line(f"{name}: {path}")
    seconds = round(time.monotonic() - begun, 3)
    home = {"fleet": fleet.spec.fleet, "home": str(fleet.paths.artifacts), "report": str(page)}
    this.out.data(**home, exports=exported, dry_run=False, seconds=seconds, **_fields(brought))
    if brought.full:
        raise brought.full
    if brought.problems:
        raise PartialFailure(f"not everything is home: {brought.problems[0]}", hint=AGAIN)


def _look(this: Session, wish: Wish) -> None:
    """What would come, host by host, and whether there is room for it."""
    from tpufleet.ops.collect import foretold, look
    from tpufleet.ops.observe import observe

    begun = time.monotonic()
    with this.fleet("collect", dry_run=True) as fleet:
        views = observe(fleet).hosts
        found = look(fleet, views, wish.among(views))
    for line in foretold(found):
        this.out.line(line)
    _tell_missing(this.out, found)
    seconds = round(time.monotonic() - begun, 3)
    home = {"fleet": fleet.spec.fleet, "home": str(fleet.paths.artifacts), "report": str(fleet.paths.report)}
    this.out.data(**home, exports={}, dry_run=True, seconds=seconds, **_fields(found))
    if found.full:
        raise found.full


def _tell_missing(out: Output, brought: Collected) -> None:
    from tpufleet.ops.collect import not_home

    lines: list[tuple[str, Sequence[str]]] = [
        ("stays where it is", brought.notes),
        ("not home", brought.problems),
        ("not home yet", not_home(brought.missing)),
    ]
    for what, texts in lines:
        for text in texts:
            out.note(f"{what}: {text}")


def _fields(brought: Collected) -> dict[str, Any]:
    """The JSON that a collect and its dry run have in common."""
    return {
        "runs": brought.runs,
        "files": brought.files,
        "bytes": brought.bytes,
        "checkpoints": brought.checkpoints,
        "hosts": [{"name": name, "files": files, "bytes": count} for name, (files, count) in brought.coming.items()],
        "free": brought.free,
        "problems": brought.problems,
        "notes": brought.notes,
        "missing": [{"run": item.run, "what": item.what, "why": item.why} for item in brought.missing],
    }
