"""A command on a host while it runs, over a channel of paramiko's."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

import paramiko

from tpufleet.errors import HostFault, Unreachable
from tpufleet.ssh.limits import Limits

PIECE = 256 << 10
BROKEN = (OSError, EOFError, paramiko.SSHException)  # what paramiko raises when a channel or its connection is gone
ENDED_BY_SIGNAL = 255


class Link(Protocol):
    """The connection that a stream lives on."""

    def answers(self) -> bool: ...
    def lost(self) -> Unreachable: ...
    def name(self) -> str: ...
    def acting_for(self, channel: paramiko.Channel) -> AbstractContextManager[None]: ...


class ChannelStream:
    """Implements `port.Stream`.

    stdout and stderr share one window, so a thread takes stderr in all the time, lest it stop stdout; another one
    sends what is given as stdin. Both end with the channel. `deadline` (monotonic) limits reading and waiting.
    """

    def __init__(self, link: Link, channel: paramiko.Channel, limits: Limits, deadline: float | None) -> None:
        self._link = link
        self._channel = channel
        self._limits = limits
        self._deadline = deadline
        self._begun = time.monotonic()
        self._ahead = b""  # read from the channel and put back
        self._stderr = bytearray()
        self._feed_error: OSError | None = None
        self._listener = threading.Thread(target=self._listen, name="ssh-stderr", daemon=True)
        self._listener.start()

    # ------------------------------------------------------------------------------------------------- reading

    def read(self, size: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        return self._receive(size)

    def unread(self, data: bytes) -> None:
        self._ahead = data + self._ahead

    def read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.read(min(PIECE, size - len(data)))
            if not piece:
                raise self._fault("cut", f"the host's answer ended after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def readline(self, limit: int) -> bytes:
        line = bytearray()
        while piece := self.read(PIECE):
            end = piece.find(b"\n") + 1
            line += piece[:end] if end else piece
            if len(line) > limit:
                raise self._fault("too-much", f"the host sent a line of more than {limit} bytes")
            if end:
                self.unread(piece[end:])
                break
        return bytes(line)

    def read_all(self, limit: int) -> bytes:
        """All of stdout; raises HostFault (`too-much`) when it is longer than `limit`."""
        data = bytearray()
        while piece := self.read(PIECE):
            data += piece
            if len(data) > limit:
                raise self._fault("too-much", f"the host's answer is longer than {limit >> 20} MiB")
        return bytes(data)

    def _receive(self, size: int) -> bytes:
        while True:
            self._channel.settimeout(self._left())
            with contextlib.suppress(TimeoutError):
                with self._link.acting_for(self._channel):
                    data = self._channel.recv(size)
                if data or self._is_whole():
                    return data
                raise self._link.lost()

    def _is_whole(self) -> bool:
        """Whether stdout ended because the command's did: the host said so, or it is still there to be asked."""
        if self._feed_error is not None:
            raise self._feed_error
        return bool(self._channel.eof_received) or self._link.answers()

    # ------------------------------------------------------------------------------------------------- writing

    def write(self, data: bytes) -> None:
        try:
            self._send(data)
        except BROKEN as error:
            if not self._link.answers():
                raise self._link.lost() from error
            raise self._fault("cut", "the command on the host takes no more input") from error

    def close_stdin(self) -> None:
        with contextlib.suppress(*BROKEN), self._link.acting_for(self._channel):  # or it is closed already
            self._channel.shutdown_write()

    def feed(self, pieces: Iterable[bytes], *, keep_open: bool) -> None:
        """Send `pieces` beside whatever else goes on, then close stdin unless it is to stay open.

        A piece that can't be had (OSError) hangs up, so that the command never takes a part for the whole.
        """

        def feed() -> None:
            source = iter(pieces)
            while True:
                try:
                    piece = next(source, None)
                except OSError as error:
                    self._feed_error = error
                    self.hang_up()
                    return
                if piece is None:
                    break
                try:
                    self._send(piece)
                except BROKEN:
                    return  # the command took no more; its exit code says whether that is bad
            if not keep_open:
                self.close_stdin()

        threading.Thread(target=feed, name="ssh-stdin", daemon=True).start()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            # A time-out is a reader's deadline; the reader deals with it.
            with contextlib.suppress(TimeoutError), self._link.acting_for(self._channel):
                sent = self._channel.send(bytes(view[:PIECE]))
                if sent == 0:
                    raise EOFError
                view = view[sent:]

    # -------------------------------------------------------------------------------------------------- the end

    def stderr(self) -> bytes:
        return bytes(self._stderr)

    def wait(self) -> int:
        while self.read(PIECE):
            pass
        if not self._channel.status_event.wait(self._left()):
            self._left()  # raises: the time is over
        self._listener.join()
        code = self._channel.exit_status
        if code >= 0:
            return code
        if not self._link.answers():
            raise self._link.lost()
        return ENDED_BY_SIGNAL

    def hang_up(self) -> None:
        with contextlib.suppress(*BROKEN):
            self._channel.close()

    def _listen(self) -> None:
        while True:
            try:
                with self._link.acting_for(self._channel):
                    data = self._channel.recv_stderr(PIECE)
            except TimeoutError:
                continue
            except BROKEN:
                return
            if not data:
                return
            self._stderr += data
            del self._stderr[: -self._limits.stderr_bytes]

    def _left(self) -> float | None:
        if self._deadline is None:
            return None
        now = time.monotonic()
        if now >= self._deadline:
            raise self._fault("timeout", f"the command was not over after {now - self._begun:.0f} s")
        return self._deadline - now

    def _fault(self, kind: str, message: str) -> HostFault:
        return HostFault(message, kind=kind, where=self._link.name())
