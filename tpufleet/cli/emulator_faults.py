"""`tpufleet emulator fault KIND …`: what goes wrong in clouds, made to go wrong in the rehearsal cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli.arguments import help_alone, session
from tpufleet.cli.emulator_at import remote
from tpufleet.errors import UsageError

if TYPE_CHECKING:
    from tpufleet.emulator.remote import Faults

app = typer.Typer(
    name="fault",
    help="Make something go wrong: one command for each kind of fault.",
    epilog="What lasts is ended by --end or by `clear`; of what is in force only stock-outs and quotas outlive a stop.",
    rich_markup_mode=None,
    invoke_without_command=True,
)

Node = Annotated[str, typer.Argument(metavar="NODE", help="tpu-0, or the node's whole name.", show_default=False)]
Host = Annotated[str, typer.Argument(metavar="HOST", help="tpu-0-w0: worker 0 of tpu-0.", show_default=False)]
End = Annotated[bool, typer.Option("--end", help="End it.")]
Zone = Annotated[str, typer.Option("--zone", metavar="ZONE", help="Where.", show_default=False)]


app.callback()(help_alone)


@app.command("stockout")
def stockout(
    context: typer.Context,
    zone: Zone,
    accelerator: Annotated[str, typer.Option("--type", metavar="TYPE", help="Only of this accelerator type.")] = "",
    chips: Annotated[int, typer.Option(min=0, metavar="N", help="The zone has so many chips in all.")] = 0,
    end: End = False,
) -> None:
    """A zone runs out of chips.

    Nodes that are there stay; creating one fails as at Google ("There is no more capacity in the zone …"), and
    queued resources wait for it.

    Example: tpufleet emulator fault stockout --zone us-central1-b --type v2-8 --chips 4
    """
    target = f"{zone}/{accelerator}" if accelerator else zone
    _say(context, "stockout", target, end, lambda faults: faults.stockout(zone, accelerator or None, chips))


@app.command("quota")
def quota(
    context: typer.Context,
    metric: Annotated[
        str, typer.Argument(metavar="METRIC", help="A quota's name, or an accelerator type for its own.")
    ],
    region: Annotated[str, typer.Option("--region", metavar="REGION", help="Or a zone.", show_default=False)],
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="In what the type's name counts: cores or chips.")] = 0,
    end: End = False,
) -> None:
    """A project's quota is small.

    Creating more than it allows is refused at once, with the quota's name, limit and region.

    Example: tpufleet emulator fault quota v2-8 --limit 32 --region us-central1
    """
    _say(context, "quota", f"{metric}@{region}", end, lambda faults: faults.quota(metric, region, limit))


@app.command("preempt")
def preempt(context: typer.Context, node: Node) -> None:
    """A node is taken away.

    Its state is PREEMPTED, all that ran on it is dead, and nothing but a delete is possible.

    Example: tpufleet emulator fault preempt tpu-0
    """
    _say(context, "preempt", node, False, lambda faults: faults.preempt(node))


@app.command("maintenance")
def maintenance(context: typer.Context, node: Node, end: End = False) -> None:
    """A node gets a maintenance event.

    Its hosts' metadata servers announce it and its health is UNHEALTHY_MAINTENANCE; with --end its hosts reboot and
    it is healthy.

    Example: tpufleet emulator fault maintenance tpu-0
    """
    _say(context, "maintenance", node, end, lambda faults: faults.maintenance(node))


@app.command("suspend")
def suspend(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="QUEUED-RESOURCE", help="Its id or whole name.", show_default=False)],
) -> None:
    """A queued resource is suspended.

    The service takes its nodes back; it stays, SUSPENDED, and eats quota until it is deleted.

    Example: tpufleet emulator fault suspend tpu-0
    """
    _say(context, "suspend", name, False, lambda faults: faults.suspend(name))


@app.command("vanish")
def vanish(context: typer.Context, node: Node) -> None:
    """A node is gone without a trace.

    Its hosts are dead and the API knows nothing of it, as preempted nodes sometimes are.

    Example: tpufleet emulator fault vanish tpu-0
    """
    _say(context, "vanish", node, False, lambda faults: faults.vanish(node))


@app.command("hang-operation")
def hang_operation(context: typer.Context, node: Node, end: End = False) -> None:
    """An operation never ends.

    The one that runs on the node, or the next one; the node may be yet to be created. A delete interrupts a create
    that hangs.

    Example: tpufleet emulator fault hang-operation tpu-0
    """
    _say(context, "hang-operation", node, end, lambda faults: faults.hang_operation(node))


@app.command("reboot")
def reboot(
    context: typer.Context,
    host: Host,
    new_ip: Annotated[bool, typer.Option("--new-ip", help="It comes up at another address.")] = False,
) -> None:
    """A host reboots.

    Every process on it is killed, /tmp and /run are empty, the boot id is new, files stay.

    Example: tpufleet emulator fault reboot tpu-0-w0 --new-ip
    """
    _say(context, "reboot", host, False, lambda faults: faults.reboot(host, new_ip=new_ip))


@app.command("down")
def down(context: typer.Context, host: Host) -> None:
    """A host is off.

    Connections are cut and refused, every process on it is killed, files stay; `up` boots it.

    Example: tpufleet emulator fault down tpu-0-w0
    """
    _say(context, "down", host, False, lambda faults: faults.down(host))


@app.command("up")
def up(context: typer.Context, host: Host) -> None:
    """A host that is down boots.

    Example: tpufleet emulator fault up tpu-0-w0
    """
    _say(context, "up", host, False, lambda faults: faults.up(host))


@app.command("partition")
def partition(context: typer.Context, host: Host, end: End = False) -> None:
    """Nobody reaches a host that runs on.

    Open connections stall and new ones get no answer, not even a refusal. With --end what stalled goes on; what
    waits for an answer gets it at its next attempt.

    Example: tpufleet emulator fault partition tpu-0-w0
    """
    _say(context, "partition", host, end, lambda faults: faults.partition(host))


@app.command("slow")
def slow(
    context: typer.Context,
    host: Host,
    kbps: Annotated[float | None, typer.Option(metavar="N", help="Kilobits a second, each way.")] = None,
    delay_ms: Annotated[float | None, typer.Option(metavar="N", help="Delay one way.")] = None,
    end: End = False,
) -> None:
    """A host is slow to reach.

    Of all its SSH connections together, also of open ones.

    Example: tpufleet emulator fault slow tpu-0-w0 --kbps 50 --delay-ms 100
    """
    if not end and kbps is None and delay_ms is None:
        raise UsageError("how slow?", hint=f"tpufleet emulator fault slow {host} --kbps 50")
    _say(context, "slow", host, end, lambda faults: faults.slow(host, kbps, delay_ms))


@app.command("disk-full")
def disk_full(context: typer.Context, host: Host, end: End = False) -> None:
    """A host's disk is full.

    No file on it can grow; reading and deleting work. It is a file size limit of the host's processes, not a disk:
    they see "File too large" where a full disk says "No space left on device", and df shows the real disk. What ran
    before and isn't Python may be killed by its next write (SIGXFSZ).

    Example: tpufleet emulator fault disk-full tpu-0-w0
    """
    _say(context, "disk-full", host, end, lambda faults: faults.disk_full(host))


@app.command("change-host-key")
def change_host_key(context: typer.Context, host: Host) -> None:
    """A host answers with another key.

    New connections see it at once; the guest attributes say the old one until the host reboots.

    Example: tpufleet emulator fault change-host-key tpu-0-w0
    """
    _say(context, "change-host-key", host, False, lambda faults: faults.change_host_key(host))


@app.command("change-ip")
def change_ip(context: typer.Context, host: Host) -> None:
    """A host has another address.

    Open connections are cut, processes run on, the API shows the new address (until the whole node boots).

    Example: tpufleet emulator fault change-ip tpu-0-w0
    """
    _say(context, "change-ip", host, False, lambda faults: faults.change_ip(host))


@app.command("api")
def api(
    context: typer.Context,
    status: Annotated[
        str, typer.Argument(metavar="STATUS", help="401, 403, 409, 429, 500, 503 …, or ABORTED, ALREADY_EXISTS …")
    ] = "",
    count: Annotated[int, typer.Option("--next", min=1, metavar="N", help="So many calls.")] = 1,
    at: Annotated[int, typer.Option("--at", min=1, metavar="N", help="From the N-th call from now on.")] = 1,
    method: Annotated[str, typer.Option(metavar="METHOD", help="Only calls of it: CreateNode, ListNodes …")] = "",
    retry_after: Annotated[int | None, typer.Option(metavar="SECONDS", help="With this Retry-After header.")] = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="Instead of Google's text.")] = "",
    lost_answer: Annotated[
        bool, typer.Option("--lost-answer", help="Carry the call out, then cut the connection.")
    ] = False,
    end: End = False,
) -> None:
    """The API answers with an error, or not at all.

    The next calls, or those from the N-th on, get STATUS in Google's envelope with Google's text. Without --method
    every call counts, polling of operations too.

    Example: tpufleet emulator fault api 429 --next 5 --method CreateNode

    Example: tpufleet emulator fault api --lost-answer --method CreateNode
    """
    if bool(status) == lost_answer:
        raise UsageError("either a STATUS or --lost-answer", hint="tpufleet emulator fault api --help")
    word = status or "lost-answer"
    _say(
        context,
        "api",
        f"{word}/{method}" if method else word,
        end,
        lambda faults: faults.api(
            word, method=method or None, at=at, count=count, retry_after=retry_after, text=text or None
        ),
    )


@app.command("slow-api")
def slow_api(
    context: typer.Context,
    ms: Annotated[float | None, typer.Option(metavar="N", help="Milliseconds before each answer.")] = None,
    end: End = False,
) -> None:
    """The API is slow.

    Example: tpufleet emulator fault slow-api --ms 3000
    """
    if not end and ms is None:
        raise UsageError("how slow?", hint="tpufleet emulator fault slow-api --ms 3000")
    _say(context, "slow-api", "", end, lambda faults: faults.slow_api(ms or 0))


@app.command("list")
def list_(context: typer.Context) -> None:
    """Show what is in force.

    Example: tpufleet emulator fault list --json
    """
    _show(context, remote(context).in_force(), "no fault is in force")


@app.command("clear")
def clear(context: typer.Context) -> None:
    """End everything that is in force.

    Preempted nodes and hosts that are down stay what they are.

    Example: tpufleet emulator fault clear
    """
    _show(context, remote(context).clear(), "no fault was in force")


def _show(context: typer.Context, faults: list[dict[str, Any]], none: str) -> None:
    out = session(context).out
    if faults:
        out.table(("kind", "target", "options"), [(one["kind"], one["target"], _options(one)) for one in faults])
    else:
        out.line(none)
    out.data(faults=faults)


def _options(fault: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fault.items() if name not in ("kind", "target"))


def _say(context: typer.Context, kind: str, target: str, end: bool, begin: Callable[[Faults], object]) -> None:
    """Begins or ends the fault and says so."""
    from tpufleet.emulator.remote import Faults

    cloud = remote(context)
    if end:
        cloud.end(kind, target)
    else:
        begin(Faults(cloud))
    lasts = any((one["kind"], one["target"]) == (kind, target) for one in cloud.in_force())
    out = session(context).out
    subject = f"{kind} {target}".rstrip()
    until = "it is used up" if kind == "api" else "--end"
    out.line(f"{subject}: " + ("ended" if end else f"in force until {until}" if lasts else "done"))
    out.data(kind=kind, target=target, in_force=lasts)
