"""The verb `probe`: what a host has and what happens on it. Fast, and without need of anything being set up.

It changes nothing, but for waking a queue that has work and no worker (after a reboot nobody else would).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path

from tpufleet.host import chips, clock, files, locks, metrics, processes, settle
from tpufleet.host.chips import Chip
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places
from tpufleet.host.records import RunState
from tpufleet.host.store import RunStore, all_states
from tpufleet.restart import FINAL_STATES, State

PERSON = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def probe(places: Places) -> JsonObject:
    """The host as one JSON object; see the fields below."""
    states = all_states(places)
    boot = settle.boot_id(places)
    if any(state.state not in FINAL_STATES for state in states):
        _look_after(places, states, boot)
    return {
        "boot_id": boot,
        "now": clock.now(),
        "uptime_s": _uptime(places),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": _memory(places),
        "disk": _disk(places),
        "chips": _chips(places, states),
        "runs": [settle.view(RunStore(places.run(state.id)), state).public for state in states],
        "code": _code(places),
        "ttl": files.read_json(places.ttl),
    }


def _look_after(places: Places, states: list[RunState], boot: str) -> None:
    """Wakes a queue nobody works off, and reads on in the logs of trainings whose supervisor is gone."""
    if not locks.is_held(places.queue_lock):
        from tpufleet.host import queue  # late: an idle host's probe doesn't pay for it

        queue.wake(places)
    for state in states:
        if state.state is State.RUNNING:
            store = RunStore(places.run(state.id))
            handle = settle.current_handle(store, state)
            if handle is None or not settle.is_watched(handle, boot):
                metrics.scan(store.at, store.spec().metrics)


def _chips(places: Places, states: list[RunState]) -> list[JsonObject]:
    """Each chip: free, held by a run, leased by a person, or busy (its device is open and nobody has leased it)."""
    present = chips.chips_of(places)
    runs = {index: state for state in states if state.state is State.RUNNING for index in state.chip_indices}
    others = [chip for chip in present if chip.number not in runs]
    openers = processes.holders([chip.device for chip in others])
    leased = [chip.number for chip in others if locks.is_held(places.lease(chip.number))]
    takers = chips.lease_pids(places, leased) if leased else {}
    shown: list[JsonObject] = []
    for chip in present:
        state = runs.get(chip.number)
        if state is not None:
            shown.append(_chip(chip, "run", run=state.id, pid=state.pid, command=" ".join(state.command)[:300]))
        else:
            shown.append(_unclaimed(places, chip, openers.get(chip.device, []), takers, leased=chip.number in leased))
    return shown


def _unclaimed(places: Places, chip: Chip, openers: list[int], takers: dict[int, int], *, leased: bool) -> JsonObject:
    """A chip that no running run claims. What a lease says of its holder is believed as far as it looks like it."""
    pid = openers[0] if openers else takers.get(chip.number)
    command = None if pid is None else processes.command_of(pid)
    if not leased:
        return _chip(chip, "busy", pid=pid, command=command) if openers else _chip(chip, "free")
    note = chips.lease_note(places, chip.number)
    run, person = note.get("run"), note.get("person")
    if isinstance(run, str) and run in places.runs():
        return _chip(chip, "run", run=run, pid=pid, command=command)  # about to begin, or just about to end
    if not isinstance(person, str) or not PERSON.fullmatch(person):
        person = None if pid is None else processes.owner_of(pid)
    return _chip(chip, "person", person=person, pid=pid, command=command)


def _chip(
    chip: Chip,
    state: str,
    *,
    run: str | None = None,
    person: str | None = None,
    pid: int | None = None,
    command: str | None = None,
) -> JsonObject:
    return {
        "index": chip.number,
        "device": chip.device.name if chip.device.parent.name != "vfio" else f"vfio/{chip.device.name}",
        "state": state,
        "run": run,
        "person": person,
        "pid": pid,
        "command": command,
    }


def _uptime(places: Places) -> float:
    return float(places.proc("uptime").read_text().split()[0])


def _memory(places: Places) -> JsonObject:
    """Bytes, from /proc/meminfo (proc(5): kB there are 1024 bytes)."""
    lines = places.proc("meminfo").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    return {"total": sizes["MemTotal"], "available": sizes["MemAvailable"]}


def _disk(places: Places) -> JsonObject:
    """Bytes of the disk that the runs are written to."""
    where: Path = places.base if places.base.exists() else places.root
    usage = shutil.disk_usage(where)
    return {"total": usage.total, "free": usage.free}


def _code(places: Places) -> list[JsonObject]:
    """The commit each repository was last brought to here, and whether its files were changed since."""
    found: list[JsonObject] = []
    for repo in places.repos():
        at = places.repo(repo)
        current = files.read_json(at.current)
        if current is None:
            continue
        from tpufleet.host import git  # late, with subprocess: a bare host's probe doesn't pay for it

        found.append({"repo": repo, "commit": current["commit"], "dirty": git.is_dirty(at.tree(current["commit"]))})
    return found
