"""SSH sessions on an emulated host: a request becomes a process (exec, shell) or an SFTP server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

import asyncssh
from asyncssh.misc import MaybeAwait
from asyncssh.session import SSHServerSession
from asyncssh.stream import SSHServerStreamSession

from tpufleet.emulator import disk
from tpufleet.emulator.commands import Channel, Machine, ProcessSession, TerminalSize


class Session(SSHServerSession[bytes]):
    """One session channel of `user`: waits for what is asked, then hands everything to that."""

    def __init__(self, machine: Machine, user: str) -> None:
        self._machine = machine
        self._user = user
        self._inner: SSHServerSession[bytes] | None = None
        self._terminal: tuple[str, TerminalSize] | None = None

    def connection_made(self, chan: Channel) -> None:
        self._chan = chan

    def pty_requested(self, term_type: str, term_size: TerminalSize, term_modes: Mapping[int, int]) -> bool:
        del term_modes  # the kernel's defaults are what a person expects
        self._terminal = (term_type, term_size)
        return True

    def shell_requested(self) -> bool:
        return self._become(ProcessSession(self._machine, self._user, None, self._terminal))

    def exec_requested(self, command: str) -> bool:
        return self._become(ProcessSession(self._machine, self._user, command, self._terminal))

    def subsystem_requested(self, subsystem: str) -> bool:
        if subsystem != "sftp":
            return False
        return self._become(SSHServerStreamSession(None, self._sftp, 3))

    def _sftp(self, chan: object) -> HomeSftp:
        return HomeSftp(cast(Channel, chan), self._machine, os.fsencode(self._machine.home(self._user)))

    def _become(self, inner: SSHServerSession[bytes]) -> bool:
        self._inner = inner
        inner.connection_made(self._chan)
        return True

    def session_started(self) -> None:
        if self._inner:
            self._inner.session_started()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self._inner:
            self._inner.data_received(data, datatype)

    def eof_received(self) -> bool:
        return bool(self._inner and self._inner.eof_received())

    def pause_writing(self) -> None:
        if self._inner:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner:
            self._inner.resume_writing()

    def signal_received(self, signal: str) -> None:
        if self._inner:
            self._inner.signal_received(signal)

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._inner:
            self._inner.terminal_size_changed(width, height, pixwidth, pixheight)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._inner:
            self._inner.connection_lost(exc)


class HomeSftp(asyncssh.SFTPServer):
    """SFTP on the machine's real paths; relative ones are meant from the user's home."""

    def __init__(self, chan: Channel, machine: Machine, home: bytes) -> None:
        self._session = chan
        super().__init__(chan)  # pyright: ignore[reportUnknownMemberType] - asyncssh leaves it generic
        self._machine = machine
        self._home = home

    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)  # noqa: PTH118 - SFTP's paths are bytes

    def write(self, file_obj: object, offset: int, data: bytes) -> MaybeAwait[int]:
        if self._machine.is_full:
            raise disk.no_space()
        return super().write(file_obj, offset, data)

    def exit(self) -> None:
        self._session.exit(0)  # scp takes a session without an exit status for a failed one
