"""A command or a login shell as a process of an emulated host, on pipes or on a terminal.

The behaviour follows OpenSSH's sshd: on pipes a session lasts until the last holder of its output is gone; on a
terminal it ends with its first process, and a cut line hangs up the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import asyncssh
from asyncssh.session import SSHServerSession

from tpufleet.emulator import processes
from tpufleet.emulator.streams import Inlet, Outlet

log = logging.getLogger(__name__)

# What sshd passes on from the "signal" request (RFC 4254, 6.9).
EOF_S = 0.25  # a process that ends closes its output a moment before it is gone
SIGNALS = frozenset(
    ("ABRT", "ALRM", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "QUIT", "SEGV", "TERM", "USR1", "USR2")
)

Channel = asyncssh.SSHServerChannel[bytes]
TerminalSize = tuple[int, int, int, int]


class Machine(Protocol):
    """What a session needs of its host."""

    def home(self, user: str) -> Path: ...

    def environment(self, user: str, connection: str, wished: Mapping[str, str]) -> dict[str, str]: ...

    def argv(self, wanted: Sequence[str]) -> list[str]:
        """The command as it has to be started there."""
        ...

    @property
    def is_full(self) -> bool:
        """Is there no room for more on the disk?"""
        ...

    def started(self, process: subprocess.Popen[bytes]) -> None: ...

    def ended(self, process: subprocess.Popen[bytes]) -> None: ...


class ProcessSession(SSHServerSession[bytes]):
    """A command (None: a login shell) as a process, with `terminal` (its type and size) or with pipes."""

    def __init__(
        self, machine: Machine, user: str, command: str | None, terminal: tuple[str, TerminalSize] | None
    ) -> None:
        self._machine = machine
        self._user = user
        self._command = command
        self._terminal = terminal
        self._child: processes.Child | None = None
        self._inlet: Inlet | None = None
        self._outlets: list[Outlet] = []
        self._flowing = 0
        self._status: int | None = None

    def connection_made(self, chan: Channel) -> None:
        self._chan = chan

    def session_started(self) -> None:
        env = self._environment()
        wanted = ["-l"] if self._command is None else ["-c", self._command]
        argv = self._machine.argv([env["SHELL"], *wanted])
        home = self._machine.home(self._user)
        try:
            if self._terminal:
                self._child = processes.spawn_on_terminal(argv, home, env, self._terminal[1])
            else:
                self._child = processes.spawn(argv, home, env)
        except OSError as error:
            log.warning("can't start a session: %s", error)
            self._chan.write_stderr(f"emulated host: can't start a session: {error.strerror}\n".encode())
            self._chan.exit(255)
            return
        self._connect(self._child)

    def _environment(self) -> dict[str, str]:
        peer = self._chan.get_extra_info("peername")
        local = self._chan.get_extra_info("sockname")
        wished = dict(self._chan.get_environment())
        if self._terminal:
            wished["TERM"] = self._terminal[0]
        return self._machine.environment(self._user, f"{peer[0]} {peer[1]} {local[0]} {local[1]}", wished)

    def _connect(self, child: processes.Child) -> None:
        self._machine.started(child.process)
        watch_exit(child.process, self._exited)
        self._inlet = Inlet(child.stdin, self._chan.pause_reading, self._chan.resume_reading)
        self._outlets = [Outlet(child.stdout, self._deliver, self._drained)]
        if child.stderr is not None:
            self._outlets.append(Outlet(child.stderr, self._chan.write_stderr, self._drained))
        self._flowing = len(self._outlets)

    def _deliver(self, data: bytes) -> None:
        self._chan.write(data)  # pyright: ignore[reportUnknownMemberType] - asyncssh leaves it generic

    def data_received(self, data: bytes, datatype: int | None) -> None:
        del datatype
        if self._inlet:
            self._inlet.write(data)

    def eof_received(self) -> bool:
        if self._inlet and not self._terminal:  # sshd keeps a terminal open as well: it has one descriptor
            self._inlet.end()
        return True

    def pause_writing(self) -> None:
        for outlet in self._outlets:
            outlet.pause()

    def resume_writing(self) -> None:
        for outlet in self._outlets:
            outlet.resume()

    def signal_received(self, signal: str) -> None:
        if self._child and self._status is None and signal in SIGNALS:
            _signal_group(self._child.process.pid, signal)

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._child and self._terminal and self._flowing:
            processes.resize(self._child.stdout, (width, height, pixwidth, pixheight))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._close_descriptors()

    def _exited(self, status: int) -> None:
        assert self._child  # noqa: S101 - for the type checker
        self._status = status
        self._machine.ended(self._child.process)
        if self._terminal:
            for outlet in self._outlets:
                outlet.end_when_idle()
        self._finish()

    def _drained(self) -> None:
        self._flowing -= 1
        if not self._flowing and not self._terminal:
            asyncio.get_running_loop().call_later(EOF_S, self._say_end_of_output)
        self._finish()

    def _say_end_of_output(self) -> None:
        """A client answers the end by closing the channel, and then asyncssh sends no exit status any more: so it is
        only said of a process that goes on without its output."""
        if self._status is None:
            self._chan.write_eof()

    def _finish(self) -> None:
        """Reports the exit, once the process has ended and its output is through."""
        if self._status is None or self._flowing:
            return
        self._close_descriptors()
        if self._status >= 0:
            self._chan.exit(self._status)
        else:
            self._chan.exit_with_signal(signal.Signals(-self._status).name.removeprefix("SIG"))

    def _close_descriptors(self) -> None:
        """A terminal hangs up by this; processes on pipes find them broken when they use them."""
        for outlet in self._outlets:
            outlet.close()
        if self._inlet:
            self._inlet.close()


def watch_exit(process: subprocess.Popen[bytes], exited: Callable[[int], None]) -> None:
    """Calls `exited` with the return code (negative: the signal) when `process` has ended."""
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(process.pid)

    def collect() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        exited(process.wait())

    loop.add_reader(descriptor, collect)


def _signal_group(pid: int, name: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.Signals[f"SIG{name}"])
