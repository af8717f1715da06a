"""Starting a training in two steps, so that it can be written down before it begins.

`fork_at_gate` makes the process that will become the training; it waits at a gate (a pipe). If whoever opened it dies
before `Gated.open`, the process exits without having become anything.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tpufleet.host.endings import COMMAND_NOT_FOUND_CODE

CANNOT_EXECUTE_CODE = 126  # what shells say for a program that is there but can't be run
RESET = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGALRM)


class Gated(NamedTuple):
    """A process that waits; `pid` is also its session and its process group."""

    pid: int
    gate: int
    failure: int

    def open(self) -> str | None:
        """Lets the process become the training; gives the sentence to log when it could not, else None."""
        os.write(self.gate, b"!")
        os.close(self.gate)
        with os.fdopen(self.failure, "rb") as pipe:
            return pipe.read().decode(errors="replace") or None

    def abandon(self) -> None:
        """The process exits without becoming anything."""
        os.close(self.gate)
        os.close(self.failure)
        os.waitpid(self.pid, 0)


def fork_at_gate(command: Sequence[str], env: dict[str, str], cwd: Path, log: int, keep: Sequence[int]) -> Gated:
    """Forks the process for `command`: a session of its own, nothing on stdin, stdout and stderr into the open file
    `log`, the descriptors `keep` (locks) inherited, signals as a shell would have them."""
    gate_read, gate_write = os.pipe()
    failure_read, failure_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(gate_write)
            os.close(failure_read)
            _wait_at(gate_read)
            _take_over_descriptors(log, keep)
            _become(command, env, cwd, failure_write)
        finally:
            os._exit(CANNOT_EXECUTE_CODE)  # whatever happens, the child never returns into the supervisor's code
    os.close(gate_read)
    os.close(failure_write)
    return Gated(pid, gate_write, failure_read)


def _wait_at(gate: int) -> None:
    """In the child: a session of its own, a shell's signals; exits when the gate falls shut instead of opening."""
    os.setsid()
    for number in RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if not os.read(gate, 1):
        os._exit(0)


def _take_over_descriptors(log: int, keep: Sequence[int]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in keep:
        os.set_inheritable(fd, True)


def _become(command: Sequence[str], env: dict[str, str], cwd: Path, failure: int) -> None:
    """Executes the command; returns never, but exits after reporting why it could not."""
    try:
        os.chdir(cwd)
        os.execvpe(command[0], list(command), env)  # noqa: S606 - a list, and no shell on purpose
    except (OSError, ValueError) as error:
        os.write(failure, _sentence(command[0], error, env).encode(errors="replace"))
        os._exit(COMMAND_NOT_FOUND_CODE if _is_missing(command[0], error, env) else CANNOT_EXECUTE_CODE)


def _is_missing(program: str, error: OSError | ValueError, env: dict[str, str]) -> bool:
    """Whether there is no such program. A directory on PATH that may not be read makes it look like a forbidden one."""
    if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR):
        return True
    folders = env.get("PATH", "").split(":")
    return "/" not in program and not any(os.path.lexists(os.path.join(folder, program)) for folder in folders)  # noqa: PTH118 - folder may be empty


def _sentence(program: str, error: OSError | ValueError, env: dict[str, str]) -> str:
    """Why a program could not be started, and where it was looked for."""
    if _is_missing(program, error, env):
        if "/" in program:
            return f"tpufleet: {program}: command not found in {Path.cwd()} (or its interpreter is missing)\n"
        return f"tpufleet: {program}: command not found on PATH={env.get('PATH', '')}\n"
    return f"tpufleet: {program}: cannot be run: {getattr(error, 'strerror', None) or error}\n"
