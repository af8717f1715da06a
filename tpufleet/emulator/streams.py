"""Bytes between a channel and a process's descriptors, each direction held back when its reader is slow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK = 128 * 1024
# Above this much unwritten input the channel is asked to pause; SSH's window bounds what is then in flight.
HIGH_WATER = 256 * 1024


class Outlet:
    """Reads non-blocking `descriptor` and hands every piece to `deliver`; calls `ended` once, at its end."""

    def __init__(self, descriptor: int, deliver: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._deliver = deliver
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._paused = False
        self._until_idle = False
        self._loop.add_reader(descriptor, self._ready)

    def pause(self) -> None:
        if self._open and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._descriptor)

    def resume(self) -> None:
        if self._open and self._paused:
            self._paused = False
            self._loop.add_reader(self._descriptor, self._ready)
            if self._until_idle:
                self._loop.call_soon(self._ready)

    def end_when_idle(self) -> None:
        """Ends at the first moment nothing is there to read, even if a writer is left (a terminal's may be)."""
        self._until_idle = True
        self._loop.call_soon(self._ready)

    def close(self) -> None:
        """Stops reading without calling `ended`."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _ready(self) -> None:
        if not self._open or self._paused:
            return
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            if not self._until_idle:
                return
            data = b""
        except OSError:  # EIO: the last process on a terminal has closed it
            data = b""
        if data:
            self._deliver(data)
            if self._until_idle:
                self._loop.call_soon(self._ready)
        else:
            self.close()
            self._ended()


class Inlet:
    """Writes to non-blocking `descriptor` what it is given; `pause` and `resume` hold the giver back."""

    def __init__(self, descriptor: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._pause = pause
        self._resume = resume
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._open = True
        self._paused = False
        self._ending = False

    def write(self, data: bytes) -> None:
        """Takes `data`; drops it when nobody reads any more, as a broken pipe does."""
        if not self._open or self._ending:
            return
        if not self._waiting:
            data = data[self._written(data) :]
            if not data or not self._open:
                return
            self._loop.add_writer(self._descriptor, self._flush)
        self._waiting += data
        if len(self._waiting) > HIGH_WATER and not self._paused:
            self._paused = True
            self._loop.call_soon(self._hold)

    def _hold(self) -> None:
        """Pauses after the current delivery: asyncssh opens the whole window anew when a pause cuts one short."""
        if self._paused:
            self._pause()

    def end(self) -> None:
        """Closes the descriptor once everything is written."""
        self._ending = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._waiting.clear()
            self._let_go()

    def _flush(self) -> None:
        del self._waiting[: self._written(self._waiting)]
        if not self._open:
            return
        if len(self._waiting) <= HIGH_WATER // 2:
            self._let_go()
        if not self._waiting:
            self._loop.remove_writer(self._descriptor)
            if self._ending:
                self.close()

    def _let_go(self) -> None:
        if self._paused:
            self._paused = False
            self._resume()

    def _written(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._descriptor, data[:CHUNK])
        except BlockingIOError:
            return 0
        except OSError:  # EPIPE, or EIO from a terminal: nobody reads
            self.close()
            return 0
