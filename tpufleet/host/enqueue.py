"""The verb `enqueue`: takes runs in, sees to it that a worker lives, answers when it has looked at them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence

from tpufleet.host import autostart, files, queue, settle, setup
from tpufleet.host.chips import chips_of
from tpufleet.host.errors import DRIFT, NOT_FOUND, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places
from tpufleet.host.records import RunState
from tpufleet.host.restore import Past, past_of
from tpufleet.host.specs import RunSpec, parse_spec
from tpufleet.host.store import RunStore
from tpufleet.restart import FINAL_STATES, State

ANSWER_WITHIN_S = 10.0
POLL_S = 0.02


def enqueue(places: Places, request: JsonObject) -> JsonObject:
    """Queues the request's `runs`; gives their states. Nothing is queued unless all of them are sound.

    A run that is queued, running, recovering or done is left alone; one that failed or was stopped is queued again
    as its next attempt, with the new spec. With `restart` a run that has ended begins anew, from nothing.
    """
    runs = files.as_list(request.get("runs"))
    restart: object = request.get("restart", False)
    if runs is None or not isinstance(restart, bool):
        raise bad("enqueue needs a list of runs")
    parsed, pasts = [parse_spec(run) for run in runs], [past_of(run) for run in runs]
    if len({spec.id for spec, _ in parsed}) != len(parsed):
        raise bad("a run is given twice")
    _check_against_host(places, [spec for spec, _ in parsed])
    _refuse_others(places, [spec for spec, _ in parsed])
    places.prepare()
    deadline = time.monotonic() + ANSWER_WITHIN_S
    for (spec, secrets), past in zip(parsed, pasts, strict=True):
        _accept(places, spec, secrets, past, deadline, restart=restart)
    if parsed:
        queue.wake(places)
        autostart.prepare(places)
    stores = [RunStore(places.run(spec.id)) for spec, _ in parsed]
    return {"runs": [settle.view(store, _looked_at(store, deadline)).public for store in stores]}


def _check_against_host(places: Places, specs: Sequence[RunSpec]) -> None:
    """Refuses what this host can never do."""
    present = len(chips_of(places))
    for spec in specs:
        if spec.chips > present:
            raise bad(f"run {spec.id} needs {spec.chips} chips, {spec.host} has {present}")
        if spec.repo and spec.commit and not places.repo(spec.repo).tree(spec.commit).is_dir():
            raise HostError(NOT_FOUND, f"run {spec.id}: commit {spec.commit[:12]} is not on {spec.host} yet")
        if spec.repo and spec.commit and spec.environment is not None:
            lines = setup.was_done(places.repo(spec.repo), spec.commit)
            if spec.environment != setup.environment_id(lines):
                raise HostError(DRIFT, f"run {spec.id}: commit {spec.commit[:12]} was set up anew, with other lines")


def _refuse_others(places: Places, specs: Sequence[RunSpec]) -> None:
    """A run of another fleet is not this one's to go on with, whatever its id."""
    for spec in specs:
        state = RunStore(places.run(spec.id)).state()
        if state is not None and state.fleet not in ("", spec.fleet):
            raise bad(f"{spec.host} has a run {spec.id} of the fleet {state.fleet}; give the job another name")


def _accept(
    places: Places, spec: RunSpec, secrets: dict[str, str], past: Past, deadline: float, *, restart: bool
) -> None:
    """Makes a run queued, or leaves it alone."""
    store = RunStore(places.run(spec.id))
    while True:
        settle.settle_if_gone(places, store)
        lock = store.take()
        if lock is not None:
            break
        state = store.state()
        if state is not None and state.state not in FINAL_STATES:
            return
        if time.monotonic() >= deadline:
            raise HostError("internal", f"run {spec.id} has ended, but something still holds its lock")
        time.sleep(POLL_S)
    try:
        state = store.state()
        if state is not None and state.state not in FINAL_STATES:
            return
        if state is not None and state.state is State.DONE and not restart:
            return
        if restart:
            _set_aside(store)
        _write(store, spec, secrets, _next(spec, state, past, restart=restart))
    finally:
        os.close(lock)


def _next(spec: RunSpec, before: RunState | None, past: Past, *, restart: bool) -> RunState:
    """The queued state of a run, with the attempts it had before; those don't count against its retries.

    The `past` of one that comes from another host does count: nobody asked for it again.
    """
    fresh = RunState(
        id=spec.id,
        job=spec.job,
        params=spec.params,
        host=spec.host,
        command=spec.command,
        submitted=spec.submitted,
        commit=spec.commit,
        dirty=spec.dirty,
        slot=spec.chips,
        priority=spec.priority,
        group_limit=spec.group_limit,
        attempts=past.attempts,
        began=past.began or spec.submitted,
        fleet=spec.fleet,
    )
    if before is None:
        return fresh
    fresh = fresh._replace(attempts=before.attempts, forgiven=len(before.attempts))
    if restart:
        return fresh
    return fresh._replace(
        step=before.step, metrics=before.metrics, resumed_from=before.resumed_from, began=before.began
    )


def _write(store: RunStore, spec: RunSpec, secrets: dict[str, str], state: RunState) -> None:
    """The state last: a run without one does not exist yet."""
    store.at.dir.mkdir(parents=True, exist_ok=True)
    store.forget_stop()
    store.write_request(spec, secrets)
    store.write_state(state)


def _set_aside(store: RunStore) -> None:
    """Moves what a run has left out of its way; what was set aside before that is removed."""
    shutil.rmtree(store.at.set_aside, ignore_errors=True)
    if store.at.dir.exists():
        store.at.dir.rename(store.at.set_aside)
    for kept in (store.at.scan, store.at.cut, store.at.verified):
        kept.unlink(missing_ok=True)


def _looked_at(store: RunStore, deadline: float) -> RunState:
    """The run's state once the worker has looked at it: running, or queued with a reason; or as it is in the end."""
    while True:
        state = store.state()
        if state is None:
            raise HostError("internal", f"run {store.at.id} has no state")
        if state.state is not State.QUEUED or state.reason is not None or time.monotonic() >= deadline:
            return state
        time.sleep(POLL_S)
