"""`tpufleet exec`: the same command on many hosts at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tpufleet.cli.arguments import On, session, shell_line
from tpufleet.cli.output import Output
from tpufleet.errors import PartialFailure, UsageError
from tpufleet.model import NodeState


def exec_(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="-- CMD...", help="Words, or one quoted line for the hosts' shell.")
    ],
    on: On = "",
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long to wait for a host.")] = 600.0,
) -> None:
    """Run a command on many hosts at once.

    Output comes grouped by host, exit codes are summed up; a single host's own code is this command's.

    Example: tpufleet exec -- uptime

    Example: tpufleet exec --on 'tpu-0,tpu-3*' -- 'df -h | tail -1'
    """
    from tpufleet.ops.observe import find_nodes, hosts_of
    from tpufleet.ops.selection import select
    from tpufleet.ssh.fanout import fan_out

    this = session(context)
    line = shell_line(command)
    results: list[dict[str, object]] = []
    hints: list[str] = []
    with this.fleet("exec") as fleet:
        nodes = find_nodes(fleet)
        hosts = select(hosts_of(fleet, nodes), on)
        if not hosts:
            raise UsageError("the fleet has no host that is ready", hint="tpufleet create")
        away = [] if on else [node for node in nodes if node.state is not NodeState.READY]
        for node in away:
            why = f"its node is {node.state}"
            results.append({"host": node.name, "exit_code": None, "stdout": "", "stderr": "", "error": why})
            hints.append("tpufleet create")
            _show(this.out, results[-1], alone=False)
        for outcome in fan_out(hosts, lambda host: fleet.connect(host).run(line, timeout_s=timeout)):
            name = outcome.item.name
            if outcome.error:
                hints.append(outcome.error.hint or "")
                results.append(
                    {"host": name, "exit_code": None, "stdout": "", "stderr": "", "error": outcome.error.message}
                )
            else:
                done = outcome.unwrap()
                out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
                results.append({"host": name, "exit_code": done.exit_code, "stdout": out, "stderr": err, "error": None})
            _show(this.out, results[-1], alone=len(hosts) == 1 and not away)
    order = [*(node.name for node in away), *(str(host.name) for host in hosts)]
    results.sort(key=lambda result: order.index(str(result["host"])))
    this.out.data(command=command, results=results)
    _sum_up(results, next(filter(None, hints), None))


def _show(out: Output, result: dict[str, object], *, alone: bool) -> None:
    if out.as_json:
        return
    from tpufleet.text import clean

    if not alone:
        code = result["exit_code"]
        out.line(f"── {result['host']}" + (f" (exit {code})" if code else ""))
    sys.stdout.write(clean(str(result["stdout"]), keep_newlines=True))
    sys.stdout.flush()
    sys.stderr.write(clean(str(result["stderr"] or ""), keep_newlines=True))
    if result["error"]:
        out.note(f"{result['host']}: {result['error']}")


def _sum_up(results: list[dict[str, object]], hint: str | None) -> None:
    """Nothing when all went well; else the one host's own exit code, or PartialFailure."""
    failed = [result for result in results if result["exit_code"] != 0]
    if not failed:
        return
    if len(results) == 1 and results[0]["exit_code"]:
        raise typer.Exit(int(str(results[0]["exit_code"])))
    said = ", ".join(f"{item['host']} {_outcome(item)}" for item in failed[:5])
    names = ",".join(str(item["host"]) for item in failed)
    raise PartialFailure(
        f"{len(failed)} of {len(results)} hosts failed: {said}",
        hint=hint or f"the same again with --on {names} asks only these",
    )


def _outcome(result: dict[str, object]) -> str:
    """In a word or two: the error itself has been shown with its host."""
    return "not reached" if result["error"] else f"exit {result['exit_code']}"
