"""The verb `probe`: what a host has and what happens on it. Fast, and without need of anything being set up.

It changes nothing, but for waking a queue that has work and no worker (after a reboot nobody else would).
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tpufleet.host import clock, files, holders, locks, metrics, people, settle, suspects, usage
from tpufleet.host.errors import is_disk_full
from tpufleet.host.files import JsonObject
from tpufleet.host.holders import Holder
from tpufleet.host.places import Places
from tpufleet.host.records import RunState, index_of
from tpufleet.host.store import RunStore, all_states
from tpufleet.restart import FINAL_STATES, State


def probe(places: Places) -> JsonObject:
    """The host as one JSON object; see the fields below."""
    states = all_states(places)
    boot = settle.boot_id(places)
    if any(state.state not in FINAL_STATES for state in states):
        try:
            _look_after(places, states, boot)
        except OSError as error:
            if not is_disk_full(error):  # `disk` says so, and the rest is worth hearing
                raise
    suspect = suspects.suspects(states)
    known = people.read(places)
    seats = {} if known is None else known.seats()
    return {
        "boot_id": boot,
        "now": clock.now(),
        "uptime_s": _uptime(places),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "memory": _memory(places),
        "disk": _disk(places),
        "chips": _chips(
            holders.look(places, states), {index_of(chip) for chip in suspect}, usage.latest(places), seats
        ),
        "lockfile": holders.lockfile(places),
        "suspect": suspects.why(suspect),
        "runs": [_run(places, state) for state in states],
        "code": _code(places),
        "ttl": files.read_json(places.ttl),
        "people": [] if known is None else [_person(person) for person in known.people.values()],
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
                spec = store.spec()
                metrics.scan(store.at, spec.metrics, spec.log_limit)


def _person(person: people.Person) -> JsonObject:
    return {"name": person.name, "uid": person.uid, "seat": list(person.seat), "state": person.state}


def _chips(
    found: Sequence[Holder], bad: Collection[int], usage: Mapping[str, JsonObject], seats: Mapping[int, str]
) -> list[JsonObject]:
    return [
        {
            "index": holder.chip.number,
            "device": holders.device_name(holder.chip.device),
            "state": holder.state,
            "run": holder.run,
            "person": holder.person,
            "pid": holder.pid,
            "user": holder.user,
            "command": holder.command,
            "suspect": holder.chip.number in bad,
            "seat": seats.get(holder.chip.number),
            **usage.get(str(holder.chip.number), {}),
        }
        for holder in found
    ]


def _run(places: Places, state: RunState) -> JsonObject:
    """The run; `heard` is its last sign of life: a byte in its log, or a record."""
    store = RunStore(places.run(state.id))
    shown = settle.view(store, state).public
    if state.state is State.RUNNING:
        times = [metrics.changed(path) for path in (store.at.log, store.at.metrics)]
        shown["heard"] = clock.rfc3339(max(times)) if any(times) else None
    return shown


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
