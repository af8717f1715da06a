"""The application: its verbs in the order of a day's work, and the options that all of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpufleet import __version__
from tpufleet.cli import (
    adopt,
    board,
    collect,
    create,
    delete,
    doctor,
    emulator,
    exec as exec_,
    init,
    logs,
    people,
    report,
    run,
    runs,
    ssh,
    status,
    stop,
    sync,
    top,
    watch,
    workshop,
)
from tpufleet.cli.output import Output
from tpufleet.cli.session import Session

app = typer.Typer(
    name="tpufleet",
    help="A fleet of Cloud TPU VMs as one machine full of chips: one training per chip, and everything comes home.",
    epilog="Begin with `tpufleet init`, then `tpufleet create`; everything is rehearsed on an emulated cloud first.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tpufleet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="TPUFLEET_CONFIG", metavar="FILE", help="The fleet file.")
    ] = Path("tpufleet.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="Answer with one JSON object on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours (NO_COLOR works as well).")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
    context.obj = Session(config, Output(as_json=as_json, quiet=quiet, color=not no_color))


app.command("init")(init.init)
app.command("create")(create.create)
app.command("adopt")(adopt.adopt)
app.command("status")(status.status)
app.command("ssh")(ssh.ssh)
app.command("ssh-config")(ssh.ssh_config)
app.command("exec")(exec_.exec_)
app.command("sync")(sync.sync)
app.command("run")(run.run)
app.command("runs")(runs.runs)
app.command("top")(top.top)
app.command("logs")(logs.logs)
app.command("stop")(stop.stop)
app.command("watch")(watch.watch)
app.command("collect")(collect.collect)
app.command("report")(report.report)
app.add_typer(people.app, name="people")
app.command("board")(board.board)
app.add_typer(workshop.app, name="workshop")
app.command("delete")(delete.delete)
app.command("doctor")(doctor.doctor)
app.add_typer(emulator.app, name="emulator")
