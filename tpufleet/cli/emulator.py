"""`tpufleet emulator`: the rehearsal cloud of this fleet, in the background."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tpufleet.cli import emulator_faults
from tpufleet.cli.arguments import help_alone, session
from tpufleet.cli.emulator_at import rehearsed, remote
from tpufleet.cli.rehearsal import ensure_running
from tpufleet.errors import UsageError
from tpufleet.text import counted

NODE_COLUMNS = ("node", "zone", "created", "deleted", "seconds")

app = typer.Typer(
    name="emulator",
    help="The rehearsal cloud: start and stop it, ask it, make things go wrong.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


app.callback()(help_alone)


@app.command("start")
def start(context: typer.Context) -> None:
    """Start it in the background, as `create` does by itself.

    Example: tpufleet emulator start
    """
    from tpufleet.emulator.launch import running as found

    this = session(context)
    spec, paths = rehearsed(context)
    paths.ensure_state()
    before = found(paths.emulator)
    now = ensure_running(spec, paths)
    word = "runs already" if before else "started"
    this.out.line(f"the rehearsal cloud {word}: {now.url} (pid {now.pid})")
    this.out.data(running=True, changed=before is None, pid=now.pid, url=now.url, ssh_port=now.ssh_port)


@app.command("stop")
def stop(context: typer.Context) -> None:
    """Stop it, and everything on its hosts.

    Its nodes come back with the next start.

    Example: tpufleet emulator stop
    """
    from tpufleet.emulator.launch import stop as end

    this = session(context)
    _, paths = rehearsed(context)
    stopped = end(paths.emulator)
    this.out.line("the rehearsal cloud is stopped" if stopped else "the rehearsal cloud is not running; nothing to do")
    this.out.data(running=False, changed=stopped)


@app.command("status")
def status(context: typer.Context) -> None:
    """Say whether it runs, and where.

    Example: tpufleet emulator status --json
    """
    from tpufleet.emulator.launch import running as found

    this = session(context)
    _, paths = rehearsed(context)
    now = found(paths.emulator)
    if now is None:
        this.out.line("the rehearsal cloud is not running")
        this.out.data(running=False)
    else:
        this.out.line(f"the rehearsal cloud runs: {now.url} (pid {now.pid}, SSH on port {now.ssh_port})")
        this.out.data(running=True, pid=now.pid, url=now.url, ssh_port=now.ssh_port)


@app.command("env")
def env(context: typer.Context) -> None:
    """Print what points gcloud at it, and hides your own credentials; starts it if needed.

    Google's Python clients know no variable for their endpoint; `tpufleet emulator status` shows the address.

    Example: eval "$(tpufleet emulator env)"
    """
    import shlex

    from tpufleet.cli.rehearsal import ensure_running, project
    from tpufleet.emulator.environment import environment

    this = session(context)
    spec, paths = rehearsed(context)
    # started here: an eval that exports nothing would leave the next gcloud with the real cloud
    variables = environment(ensure_running(spec, paths).url, project(spec), paths.emulator)
    for name, value in variables.items():
        this.out.line(f"export {name}={shlex.quote(value)}")
    this.out.data(env=variables)


@app.command("book")
def book(context: typer.Context) -> None:
    """Show the judge's book: what the cloud itself saw.

    Every node that ever was with the seconds it was billed, every queued resource, the calls to the API, the
    processes started on hosts.

    Example: tpufleet emulator book --json
    """
    this = session(context)
    written = remote(context).book()
    out = this.out
    nodes = written["nodes"]
    out.line(f"{counted(len(nodes), 'node')}, {sum(node['nodeSeconds'] for node in nodes):.0f} node-seconds")
    if nodes:
        out.table(NODE_COLUMNS, [_row(node, "nodeSeconds") for node in nodes], numbers=("seconds",))
    if written["queuedResources"]:
        out.line()
        out.table(("queued resource", *NODE_COLUMNS[1:]), [_row(one, "seconds") for one in written["queuedResources"]])
    for title, column in (("calls", "method"), ("processes", "host")):
        if written[title]:
            out.line()
            out.table((column, title), sorted(written[title].items()), numbers=(title,))
    out.data(**written)


def _row(one: dict[str, Any], seconds: str) -> tuple[str, ...]:
    _, _, _, zone, _, name = one["name"].split("/")
    return (name, zone, one["created"], one["deleted"] or "-", f"{one[seconds]:.0f}")


@app.command("settings")
def settings(
    context: typer.Context,
    create_seconds: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="How long a node takes from CREATING to READY.")
    ] = None,
    manual: Annotated[
        bool | None,
        typer.Option("--manual/--by-time", help="States advance by `step`, or by time.", show_default=False),
    ] = None,
) -> None:
    """Show or change how it runs.

    `tpufleet create` sets what the fleet file says.

    Example: tpufleet emulator settings --manual
    """
    this = session(context)
    cloud = remote(context)
    changed = create_seconds is not None or manual is not None
    now = cloud.configure(create_seconds=create_seconds, manual=manual) if changed else cloud.settings()
    this.out.table(("setting", "value"), [(name, json.dumps(value)) for name, value in now.items()])
    this.out.data(settings=now, changed=changed)


@app.command("step")
def step(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NODE", help="A node or a queued resource.", show_default=False)],
) -> None:
    """Let a node go on to its next state, when states advance by hand.

    Example: tpufleet emulator step tpu-0
    """
    this = session(context)
    cloud = remote(context)
    if not cloud.step(name):
        raise UsageError(
            f"{name} waits for no step",
            hint="" if cloud.settings()["manual"] else "tpufleet emulator settings --manual",
        )
    this.out.line(f"{name} goes on")
    this.out.data(name=name, stepped=True)


app.add_typer(emulator_faults.app, name="fault")
