"""One attempt of one run: the small process that starts a training, looks after it and writes down how it ended.

What it does, in the order that makes a SIGKILL at any moment harmless:

    holds the run's lock and the chips' leases (inherited from the queue's worker, handed on to the training)
    forks the training, which waits at a gate       killed here: the gate falls shut, the run is queued still
    writes the handle, syncs                        killed here: the same
    writes the state "running", syncs               killed here: gate shut, lock free: the attempt is closed as lost
    opens the gate: the training begins             killed here: the training lives and holds lock and leases
    waits; reads numbers from the log; stops it when asked
    ends what is left of its processes, writes the end, syncs, lets go of the locks, wakes the queue
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import (
    checkpoints,
    clock,
    endings,
    holders,
    launch,
    locks,
    logfile,
    metrics,
    processes,
    queue,
    settle,
)
from tpufleet.host.chips import chips_of
from tpufleet.host.environment import training_environment
from tpufleet.host.errors import is_disk_full
from tpufleet.host.limits import GRACE_S, Limits
from tpufleet.host.pin import pin_to_chips, pin_to_cpu
from tpufleet.host.places import Places
from tpufleet.host.records import Attempt, Handle, RunState
from tpufleet.host.specs import RunSpec
from tpufleet.host.store import RunStore
from tpufleet.host.versions import versions_of
from tpufleet.restart import Reason, State

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
WATCHED = frozenset({signal.SIGCHLD, signal.SIGTERM})
TICK_S = 1.0
LEFTOVER_GRACE_S = 2.0

# A host that goes down ends the training and its supervisor together: how long to wait for the second signal.
GOING_DOWN_S = 0.5


class Task(NamedTuple):
    """A run that is to be started, and the locks that are held for it."""

    places: Places
    store: RunStore
    spec: RunSpec
    lock: int
    leases: dict[int, int]


class Ready(NamedTuple):
    """Everything a training needs to start."""

    env: dict[str, str]
    cwd: Path
    resume: Path | None
    dirty: bool
    tmp: Path
    versions: dict[str, str]


class Watched(NamedTuple):
    """How the watch over a training ended."""

    status: int
    stopped: bool = False
    host_goes_down: bool = False
    broken: Reason | None = None  # the limit that it was ended for


class CannotStart(Exception):
    """The run cannot be started as it was asked for; the sentence goes to its log."""


def supervise(places: Places, run: str, lock: int, leases: dict[int, int]) -> None:
    """Does one attempt of `run`; `lock` and `leases` ({chip: descriptor}) are inherited and held already."""
    if not all(locks.lock_again(fd) for fd in (lock, *leases.values())):
        return  # started by hand beside a living one
    store = RunStore(places.run(run))
    state, task = store.state(), None
    try:
        if state is None or state.state not in (State.QUEUED, State.RECOVERING):
            return
        if store.asked_to_stop() is not None:
            settle.stop_before_start(store, state)
            return
        task = Task(places, store, store.spec(), lock, leases)
        _attempt(task, state)
    except OSError as error:
        if task is None or state is None or not is_disk_full(error):
            raise
        settle.close(store, _opened(state, task), endings.Ending(None, Reason.DISK_FULL), stopped=False)
    finally:
        for fd in (lock, *leases.values()):
            os.close(fd)
        queue.wake(places)


def _attempt(task: Task, state: RunState) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans of the tree come to us
    at = task.store.at
    at.dir.mkdir(parents=True, exist_ok=True)
    metrics.begin(at)
    log = os.open(at.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    if logfile.is_torn(at):
        _note(log, "\n")  # what comes now is no part of that line
    state = _opened(state, task)
    try:
        ready = _make_ready(task, state.attempts[-1].n)
    except CannotStart as problem:
        _note(log, f"tpufleet: {problem}\n")
        settle.close(task.store, state, endings.Ending(None, Reason.CANNOT_START), stopped=False)
        return
    try:
        _start_and_watch(task, state, ready, log)
    finally:
        shutil.rmtree(ready.tmp, ignore_errors=True)


def _start_and_watch(task: Task, state: RunState, ready: Ready, log: int) -> None:
    places, store, spec, lock, leases = task
    gated = launch.fork_at_gate(spec.command, ready.env, ready.cwd, log, (lock, *leases.values()))
    try:
        handle = _handle(places, gated.pid, state, tuple(leases), ready.tmp)
        store.write_handle(handle)
        resumed = ready.resume.name if ready.resume else None
        state = state._replace(state=State.RUNNING, pid=gated.pid, dirty=ready.dirty, resumed_from=resumed)
        state = state._replace(versions=ready.versions)
        store.write_state(state)
    except OSError:
        gated.abandon()
        raise
    memory_kills = endings.memory_kills()
    with logfile.steady(store.at):
        log_from = logfile.end_of(store.at)
    failure = gated.open()
    if failure is not None:
        _note(log, failure)
    watched = _watch(store, spec, handle)
    processes.end(lambda: _tree(store, handle), LEFTOVER_GRACE_S)
    _reap()
    if leases:
        holders.clear_lockfile(places)
    if watched.host_goes_down:
        return  # the next boot, or the queue's worker if this host lives on after all, starts it again
    with logfile.steady(store.at):
        said = logfile.tail_of(store.at, log_from, endings.LOG_TAIL)
    hints = endings.Hints(
        killed_by_us=watched.stopped,
        memory_ran_out=endings.memory_kills() > memory_kills,
        disk_is_full=endings.disk_is_full(store.at.dir, said),
        tpu=endings.tpu_trouble(said) if leases and spec.device == "tpu" else None,
    )
    ending = endings.from_wait_status(watched.status, hints)
    if watched.broken is not None:
        _note(log, f"tpufleet: ended by its limits ({watched.broken.value})\n")
        ending = ending._replace(reason=watched.broken)
    if failure is not None and ending.exit_code == launch.CANNOT_EXECUTE_CODE:
        ending = ending._replace(reason=Reason.CANNOT_START)
    _close_when_there_is_room(store, state, ending, stopped=watched.stopped)


def _note(log: int, line: str) -> None:
    """A line of ours in the run's log, if there is room for it."""
    with contextlib.suppress(OSError):
        os.write(log, line.encode(errors="replace"))


def _opened(state: RunState, task: Task) -> RunState:
    """The state with its next attempt begun."""
    names = tuple(f"{task.spec.host}:{chip}" for chip in task.leases)
    number = state.attempts[-1].n + 1 if state.attempts else 1
    attempt = Attempt(n=number, host=task.spec.host, chips=names, started=clock.now())
    return state._replace(reason=None, why=None, chips=names, not_before=0.0, attempts=(*state.attempts, attempt))


def _make_ready(task: Task, attempt: int) -> Ready:
    """Finds directory, checkpoint and environment of the attempt; raises CannotStart."""
    places, store, spec, _, leases = task
    tree = None if spec.repo is None or spec.commit is None else places.repo(spec.repo).tree(spec.commit)
    top = store.at.dir if tree is None else tree
    cwd = Path(os.path.realpath(top / spec.workdir))
    if not cwd.is_dir() or not cwd.is_relative_to(os.path.realpath(top)):
        raise CannotStart(f"{spec.workdir}: no such directory in the repository")
    resume = checkpoints.newest_verified(store.at.checkpoints)
    tmp = _make_tmp(places, store.at.id)
    if spec.device == "cpu":
        pin = pin_to_cpu()
    else:
        given = spec.env.get("LIBTPU_INIT_ARGS", "")
        pin = pin_to_chips(tuple(leases), len(chips_of(places)), store.at.dir, given, multi_host=spec.multi_host)
    env = training_environment(
        spec,
        host=os.environ,
        tree=tree,
        secrets=store.secrets(),
        attempt=attempt,
        run_dir=store.at.dir,
        tmp=tmp,
        resume=resume,
        pin=pin,
    )
    return Ready(env, cwd, resume, _is_dirty(spec, tree, store.at.dir), tmp, versions_of(spec.command, env, cwd))


def _make_tmp(places: Places, run: str) -> Path:
    """A temporary directory for the attempt. Its path is short, since sockets may be made in it.

    One of an attempt that was killed before anybody knew of it goes: its name tells whose it was.
    """
    own = Path(os.environ.get("TMPDIR") or places.root / "tmp")
    folder = own if own.is_dir() else Path(tempfile.gettempdir())
    prefix = f"run-{hashlib.sha256(run.encode()).hexdigest()[:8]}-"
    for left in folder.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder))


def _is_dirty(spec: RunSpec, tree: Path | None, run_dir: Path) -> bool:
    """Whether the checkout was changed by hand; what is changed in it is kept in the run's directory."""
    from tpufleet.host import changes, git  # late, with subprocess

    dirty = spec.dirty or (tree is not None and git.is_dirty(tree))
    changes.keep(tree if dirty else None, run_dir)
    return dirty


def _handle(places: Places, pid: int, state: RunState, chips: tuple[int, ...], tmp: Path) -> Handle:
    child, own = processes.stat_of(pid), processes.stat_of(os.getpid())
    if child is None or own is None:
        raise ProcessLookupError(pid)
    return Handle(
        boot_id=settle.boot_id(places),
        attempt=state.attempts[-1].n,
        pid=pid,
        start=child.start,
        supervisor=os.getpid(),
        supervisor_start=own.start,
        chips=chips,
        tmp=str(tmp),
        metrics_from=metrics.size_of(places.run(state.id).metrics),
    )


def _watch(store: RunStore, spec: RunSpec, handle: Handle) -> Watched:
    """Waits until the training's first process has ended, or ends it when someone asks for that."""
    told_to_end = False
    limits = Limits(store.at, spec, handle)
    while True:
        grace = store.asked_to_stop()
        if grace is not None:
            processes.end(lambda: _tree(store, handle), grace)
            return Watched(os.waitpid(handle.pid, 0)[1], stopped=True)
        with contextlib.suppress(OSError):
            metrics.scan(store.at, spec.metrics, spec.log_limit)
        woken = signal.sigtimedwait(WATCHED, TICK_S)
        if woken is not None and woken.si_signo == signal.SIGTERM and store.asked_to_stop() is None:
            told_to_end = True
        status = _reap().get(handle.pid)
        if status is not None:
            ended_by_signal = os.WIFSIGNALED(status) and store.asked_to_stop() is None
            if ended_by_signal and not told_to_end:
                told_to_end = signal.sigtimedwait({signal.SIGTERM}, GOING_DOWN_S) is not None
            return Watched(status, host_goes_down=told_to_end and status != 0)
        broken = limits.broken()
        if broken is not None:
            processes.end(lambda: _tree(store, handle), GRACE_S)
            return Watched(os.waitpid(handle.pid, 0)[1], broken=broken)


def _tree(store: RunStore, handle: Handle) -> list[int]:
    """All living processes of the attempt. Orphans that left its session and environment behind are our children."""
    return sorted({*processes.tree_of(handle, store.at.dir), *processes.descendants_of(os.getpid())})


def _reap() -> dict[int, int]:
    """Takes leave of every child that has ended: {pid: wait status}."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def _close_when_there_is_room(store: RunStore, state: RunState, ending: endings.Ending, *, stopped: bool) -> None:
    """Writes the end down; on a full disk as soon as there is room, since nobody else knows the exit code."""
    while True:
        try:
            settle.close(store, state, ending, stopped=stopped)
        except OSError as error:
            if not is_disk_full(error):
                raise
            time.sleep(TICK_S)
        else:
            return
