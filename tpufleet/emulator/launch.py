"""Starting, finding and stopping the emulator's daemon. Imports little: every command may pass through here."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpufleet.emulator.remote import Remote
from tpufleet.errors import StateError

STOP_TIMEOUT_S = 30


@dataclass(frozen=True)
class Running:
    """A daemon that serves: the API's address and the port of all its hosts' SSH servers."""

    pid: int
    url: str
    ssh_port: int
    hosts: str = "process"


def start(
    directory: Path,
    *,
    path: Sequence[Path] = (),
    create_seconds: float | None = None,
    hosts: str | None = None,
    with_us: bool = False,
    timeout_s: float = 20,
) -> Running:
    """The daemon of `directory`, started if it isn't running; returns when it serves.

    `path` (directories first on the hosts' PATH) and `create_seconds` hold from now on, also for a daemon that runs
    already; the kind of `hosts` ("process", "namespace") stays while it runs. `with_us`: it ends when this process
    ends, however that happens. Raises StateError with the daemon's own words when it doesn't come up.
    """
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _starting(directory):
            if found := running(directory):
                _is_of_kind(found, hosts)
                Remote(found.url).configure(path, create_seconds)
                return found
            options = [f"--path={one}" for one in path]
            if create_seconds is not None:
                options.append(f"--create-seconds={create_seconds}")
            if hosts is not None:
                options.append(f"--hosts={hosts}")
            if with_us:
                options.append(f"--with-process={os.getpid()}")
            _spawn(directory, options, timeout_s)
            if found := running(directory):
                return found
    except OSError as error:
        raise StateError(
            f"the emulator's directory {directory} can't be used: {error.strerror or error}",
            hint="make room or take another directory; TPUFLEET_EMULATOR names one",
        ) from error
    raise StateError(f"the emulator in {directory} ended as soon as it was up", hint=_log_hint(directory))


def _is_of_kind(found: Running, hosts: str | None) -> None:
    if hosts not in (None, found.hosts):
        raise StateError(
            f"the rehearsal cloud runs with {found.hosts} hosts, and {hosts} hosts are wanted",
            hint="tpufleet delete, then: tpufleet emulator stop",
        )


def running(directory: Path) -> Running | None:
    """The daemon that serves from `directory` now, if there is one."""
    try:
        facts = json.loads((directory / "emulator.json").read_text())
        found = Running(int(facts["pid"]), str(facts["url"]), int(facts["ssh_port"]), str(facts["hosts"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if _is_owned(directory) else None


def stop(directory: Path) -> bool:
    """Stops the daemon of `directory` and everything on its hosts; False when none ran. Nodes stay recorded.

    Raises StateError when it doesn't end in time.
    """
    if not directory.is_dir():
        return False
    with _starting(directory):
        return _stop(directory)


def _stop(directory: Path) -> bool:
    found = running(directory)
    if found is None:
        return False
    try:
        process = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return False
    try:
        if running(directory) != found:  # the pid may have been another's by then
            return False
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], STOP_TIMEOUT_S)[0]:
            raise StateError(f"the emulator (process {found.pid}) does not end", hint=_log_hint(directory))
    finally:
        os.close(process)
    return True


def _spawn(directory: Path, options: list[str], timeout_s: float) -> None:
    """Starts the daemon in a session of its own and waits until it says that it is ready, or ends."""
    ours, theirs = os.pipe()
    complaints = directory / "emulator.err"
    try:
        with complaints.open("w") as errors:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "tpufleet.emulator", f"--dir={directory}", f"--ready-fd={theirs}", *options],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd="/",
                pass_fds=(theirs,),
                start_new_session=True,
            )
        os.close(theirs)
        word = _read(ours, timeout_s)
    finally:
        os.close(ours)
    if word == "ready\n":
        daemon.returncode = 0  # it outlives us: keeps Popen from complaining about a child that still runs
        return
    daemon.kill()
    daemon.wait()
    if word is None:
        raise StateError(f"the emulator did not come up within {timeout_s:g} s", hint=_log_hint(directory))
    last = complaints.read_text(errors="replace").strip().splitlines()[-1:]
    raise StateError(
        f"the emulator can't start: {word or (last[0] if last else 'it ended without a word')}",
        hint=_log_hint(directory),
    )


def _read(descriptor: int, timeout_s: float) -> str | None:
    """What the daemon says first; empty when it ended without a word, None when nothing came in time."""
    if not select.select([descriptor], [], [], timeout_s)[0]:
        return None
    return os.read(descriptor, 4096).decode(errors="replace")


def _log_hint(directory: Path) -> str:
    return f"see {directory}/emulator.log and emulator.err"


@contextlib.contextmanager
def _starting(directory: Path) -> Generator[None]:
    """One start at a time: who comes second waits and finds the daemon running."""
    with (directory / "launch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_owned(directory: Path) -> bool:
    """Whether a daemon holds the directory's lock."""
    try:
        with (directory / "lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
