"""One authenticated connection to one host, and the watch that notices when the host has gone silent.

A half-open peer (a stopped sshd, a cut network) is never noticed by paramiko itself: its keepalive does not wait for
an answer. So a thread measures the silence and asks, with a deadline.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import paramiko

from tpufleet.errors import HostFault, StateError, Unreachable
from tpufleet.model import Host
from tpufleet.ssh.limits import Limits
from tpufleet.ssh.port import Result
from tpufleet.ssh.stream import BROKEN, PIECE, ChannelStream
from tpufleet.ssh.transport import OrderlyTransport
from tpufleet.ssh.wire import LiveSocket
from tpufleet.text import clean

CHANNELS = 8  # sshd's MaxSessions is 10
SESSION_PAUSE_S = 0.05
# A host may answer an opening late: on a narrow line what a transfer beside it has under way comes first. One that is
# silent is the watch's matter, so this ends only what answers everything else.
OPEN_LIMIT_S = 600.0


class ParamikoConnection:
    """Implements `port.Connection` (and `stream.Link`) over an authenticated transport."""

    def __init__(self, host: Host, transport: OrderlyTransport, wire: LiveSocket, limits: Limits) -> None:
        self._host = host
        self._transport = transport
        self._wire = wire
        self._limits = limits
        self._channels = threading.BoundedSemaphore(CHANNELS)
        self._closed = threading.Event()
        self._silent = False
        threading.Thread(target=self._watch, name="ssh-watch", daemon=True).start()

    # ------------------------------------------------------------------------------------------- the connection

    @property
    def alive(self) -> bool:
        return not self._closed.is_set() and self._transport.is_active()

    def close(self) -> None:
        self._closed.set()
        self._transport.close()

    def answers(self) -> bool:
        """Whether the host is still there: it replies to a request that any server replies to, even if by refusing."""
        asked = time.monotonic()
        replied = threading.Event()

        def ask() -> None:
            with contextlib.suppress(*BROKEN):
                self._transport.global_request("keepalive@openssh.com", wait=True)
            replied.set()

        # In a thread of its own, since sending to a dead peer may block as well.
        threading.Thread(target=ask, name="ssh-probe", daemon=True).start()
        replied.wait(self._limits.probe_s)
        return self.alive and (replied.is_set() or self._wire.heard > asked)

    def lost(self) -> Unreachable:
        said = "stopped answering" if self._silent else "the connection was lost"
        return Unreachable(said, where=self._host.name, hint="run the same command again, or see tpufleet status")

    def name(self) -> str:
        return self._host.name

    def acting_for(self, channel: paramiko.Channel) -> AbstractContextManager[None]:
        return self._transport.acting_for(channel)

    def _watch(self) -> None:
        while self.alive and not self._closed.wait(self._limits.tick_s):
            if time.monotonic() - self._wire.heard > self._limits.quiet_s and not self.answers():
                self._silent = self.alive
                self.close()

    # ------------------------------------------------------------------------------------------------- commands

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float | None = 60.0) -> Result:
        return self._finish(command, [stdin] if stdin else [], timeout_s)

    @contextlib.contextmanager
    def stream(
        self, command: str, *, stdin: bytes | None = b"", keep_stdin_open: bool = False
    ) -> Generator[ChannelStream]:
        keep_open = keep_stdin_open or stdin is None
        with self._streaming(command, [stdin] if stdin else [], keep_open=keep_open) as stream:
            yield stream

    def send_file(
        self,
        command: str,
        path: Path,
        *,
        progress: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        try:
            return self._finish(command, _pieces(path, progress), timeout_s)
        except OSError as error:
            raise StateError(f"can't be read: {error.strerror or error}", where=str(path)) from error

    def _finish(self, command: str, stdin: Iterable[bytes], timeout_s: float | None) -> Result:
        with self._streaming(command, stdin, timeout_s=timeout_s) as stream:
            stdout = stream.read_all(self._limits.answer_bytes)
            code = stream.wait()
            return Result(code, stdout, stream.stderr())

    @contextlib.contextmanager
    def _streaming(
        self, command: str, stdin: Iterable[bytes], *, keep_open: bool = False, timeout_s: float | None = None
    ) -> Generator[ChannelStream]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._channels:
            channel = self._opened()
            stream = ChannelStream(self, channel, self._limits, deadline)
            try:
                self._execute(channel, command)
                if stdin:
                    stream.feed(stdin, keep_open=keep_open)
                elif not keep_open:
                    stream.close_stdin()
                yield stream
            finally:
                stream.hang_up()

    def _opened(self) -> paramiko.Channel:
        """A session on the host; sshd counts a closed one until it has cleaned up, so a refusal may be over soon.

        Where several threads open one at once, paramiko tells only one of them that it was a refusal.
        """
        deadline = time.monotonic() + self._limits.refusing_s
        while True:
            try:
                return self._transport.open_session(timeout=OPEN_LIMIT_S)
            except BROKEN as error:
                if not self.alive:
                    raise self.lost() from error
                if time.monotonic() >= deadline:
                    why = error.text if isinstance(error, paramiko.ChannelException) else str(error)
                    raise self._refusal(f"refused one more session: {clean(why)}") from error
                time.sleep(SESSION_PAUSE_S)

    def _execute(self, channel: paramiko.Channel, command: str) -> None:
        try:
            channel.exec_command(command.encode("utf-8", "surrogateescape"))
        except BROKEN as error:
            if not self.answers():
                raise self.lost() from error
            raise self._refusal("refused to run a command") from error

    def _refusal(self, message: str) -> HostFault:
        return HostFault(message, kind="refused", where=self._host.name, hint="tpufleet doctor")


def _pieces(path: Path, progress: Callable[[int], None] | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
            if progress:
                progress(len(piece))
