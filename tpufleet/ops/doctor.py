"""Check what usually goes wrong; every finding comes with the command that mends it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpufleet.errors import TpufleetError
from tpufleet.model import HostView, NodeState, Snapshot, Spec
from tpufleet.ops.code import resolve
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import observe
from tpufleet.ops.runs import Located, located, read_log
from tpufleet.paths import LocalPaths
from tpufleet.plan import wanted_nodes
from tpufleet.restart import State
from tpufleet.ssh.fanout import gather
from tpufleet.text import listed, natural, size
from tpufleet.troubles import Trouble, find

LOW_DISK = 2 << 30
LOG_END = 64 << 10
MOST_LOGS = 20  # of runs in trouble, the newest


@dataclass(frozen=True)
class Finding:
    """One check: `text` says what was seen, `fix` the command that mends it when it isn't `ok`."""

    check: str
    ok: bool
    text: str
    fix: str | None = None


def local_findings(spec: Spec, paths: LocalPaths) -> Iterator[Finding]:
    """What can be said without the cloud: programs, disk, the repository."""
    for program, use in (("git", "bring code to the hosts"), ("ssh", "open shells (tpufleet ssh)")):
        there = shutil.which(program) is not None
        yield Finding(program, there, _version(program) if there else f"missing; needed to {use}", f"install {program}")
    free = shutil.disk_usage(paths.directory).free
    yield Finding("disk", free > LOW_DISK, f"{size(free)} free at home", "free some space, or move the fleet file")
    if spec.code is None:
        yield Finding("code", True, "the file names no repository; add code.repo to run trainings")
        return
    try:
        code = resolve(spec.code, paths.directory)
    except TpufleetError as error:
        yield Finding("code", False, error.message, error.hint)
    else:
        note = f"; {code.uncommitted} files have changes that are not committed" if code.uncommitted else ""
        yield Finding("code", True, f"{spec.code.repo} at {code.commit[:12]}{note}")


def fleet_findings(fleet: Fleet) -> Iterator[Finding]:
    """What the cloud and the hosts say."""
    try:
        snapshot = observe(fleet)
    except TpufleetError as error:
        yield Finding("cloud", False, str(error), error.hint)
        return
    answering = [zone for zone in fleet.zones if zone not in snapshot.not_granted]
    yield Finding("cloud", True, f"answers in {', '.join(answering)}")
    for zone in snapshot.not_granted:
        yield Finding("cloud", False, f"{zone} is not granted to the project", "take it out of cloud.zones in the file")
    yield from _node_findings(fleet, snapshot)
    for view in snapshot.hosts:
        yield from _host_findings(view)
    yield from _run_findings(fleet, snapshot)


def _node_findings(fleet: Fleet, snapshot: Snapshot) -> Iterator[Finding]:
    wanted = wanted_nodes(fleet.spec)
    there = {node.name: node for node in snapshot.nodes}
    missing = [name for name in wanted if name not in there or there[name].state is not NodeState.READY]
    ready = len(wanted) - len(missing)
    away = listed([f"{name} {there[name].state if name in there else 'absent'}" for name in missing])
    text = f"{ready} of {len(wanted)} nodes are ready" + (f": {away}" if away else "")
    yield Finding("nodes", not missing, text, "tpufleet create")
    for node in snapshot.nodes:
        if node.health not in ("HEALTHY", "HEALTH_UNSPECIFIED", ""):
            yield Finding(node.name, False, f"its health is {node.health}", f"tpufleet delete {node.name}, then create")
    surplus = sorted(name for name, node in there.items() if name not in wanted and not node.adopted)
    if surplus:
        yield Finding("nodes", False, f"not in the file: {', '.join(surplus)}", "tpufleet create --dry-run")


def _host_findings(view: HostView) -> Iterator[Finding]:
    name = view.host.name
    if view.probe is None:
        text = view.error or "made, but nothing of tpufleet is on it yet"
        yield Finding(name, False, text, "tpufleet create")
        return
    chips = len(view.chips)
    if chips < view.host.chips:
        fix = f"tpufleet delete {view.host.node}, then tpufleet create"
        yield Finding(name, False, f"{chips} of {view.host.chips} chips", fix)
    kept: Mapping[str, Any] = view.probe.get("ttl") or {}
    if kept.get("can_delete") is False:
        text = f"can't delete its node when its ttl is over: {kept.get('why')}"
        yield Finding(
            name, False, text, "cloud.service_account in the fleet file, or tpufleet delete --expired in cron"
        )
    busy = [chip for chip in view.chips if chip["state"] == "busy"]
    if busy:
        held = ", ".join(f"chip {chip['index']} by pid {chip.get('pid')}" for chip in busy)
        yield Finding(name, False, f"held by something that is not tpufleet's: {held}", f"tpufleet ssh {name}")
    free = int(view.probe["disk"]["free"])
    yield Finding(name, free > LOW_DISK, f"{chips} chips, {size(free)} free", f"tpufleet ssh {name} -- df -h")


def _run_findings(fleet: Fleet, snapshot: Snapshot) -> Iterator[Finding]:
    """What the logs of runs in trouble say that has a known meaning; runs that say the same are told together."""
    ill = [run for run in located(snapshot.hosts).values() if run.state["state"] in (State.FAILED, State.RECOVERING)]
    newest = sorted(ill, key=lambda run: str(run.state.get("submitted")), reverse=True)[:MOST_LOGS]
    told: dict[Trouble, list[str]] = {}

    def first(run: Located) -> tuple[Trouble, ...]:
        log = b"".join(read_log(fleet, run, offset=-LOG_END, follow=False))
        return find(log.decode("utf-8", errors="replace"))[:1]

    for outcome in gather(newest, first):
        for trouble in outcome.unwrap() if outcome.error is None else ():  # silent hosts are findings of their own
            told.setdefault(trouble, []).append(str(outcome.item.state["id"]))
    for trouble, runs in told.items():
        text = f"{trouble.meaning} ({trouble.chapter})"
        yield Finding(listed(sorted(runs, key=natural)), False, text, trouble.mend)


def _version(program: str) -> str:
    flag = "-V" if program == "ssh" else "--version"
    done = subprocess.run([program, flag], capture_output=True, text=True, timeout=10, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def all_well(findings: Sequence[Finding]) -> bool:
    return all(finding.ok for finding in findings)
