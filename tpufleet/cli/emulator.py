"""`tpufleet emulator`: the rehearsal cloud of this fleet, in the background."""

from __future__ import annotations

import typer

from tpufleet.cli.arguments import session
from tpufleet.cli.rehearsal import ensure_running
from tpufleet.errors import UsageError
from tpufleet.model import Provider, Spec
from tpufleet.paths import LocalPaths

app = typer.Typer(
    name="emulator",
    help="The rehearsal cloud: start, stop, status.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


@app.callback()
def help_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("start")
def start(context: typer.Context) -> None:
    """Start it in the background, as `create` does by itself.

    Example: tpufleet emulator start
    """
    from tpufleet.emulator.launch import running

    this = session(context)
    spec, paths = _rehearsed(context)
    paths.ensure_state()
    before = running(paths.emulator)
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
    _, paths = _rehearsed(context)
    stopped = end(paths.emulator)
    this.out.line("the rehearsal cloud is stopped" if stopped else "the rehearsal cloud is not running; nothing to do")
    this.out.data(running=False, changed=stopped)


@app.command("status")
def status(context: typer.Context) -> None:
    """Say whether it runs, and where.

    Example: tpufleet emulator status --json
    """
    from tpufleet.emulator.launch import running

    this = session(context)
    _, paths = _rehearsed(context)
    now = running(paths.emulator)
    if now is None:
        this.out.line("the rehearsal cloud is not running")
        this.out.data(running=False)
    else:
        this.out.line(f"the rehearsal cloud runs: {now.url} (pid {now.pid}, SSH on port {now.ssh_port})")
        this.out.data(running=True, pid=now.pid, url=now.url, ssh_port=now.ssh_port)


def _rehearsed(context: typer.Context) -> tuple[Spec, LocalPaths]:
    this = session(context)
    spec = this.spec()
    if spec.cloud.provider is not Provider.EMULATOR:
        raise UsageError(
            f"this fleet is on {spec.cloud.provider}, not on the rehearsal cloud", hint="--config another.yaml"
        )
    return spec, this.paths(spec)
