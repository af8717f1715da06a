"""Pauses on the way from state to state: so many seconds, until somebody steps by hand, or for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tpufleet.emulator.clock import Clock


class Steps:
    """`manual` says, when a pause begins, whether it ends by time or by `step`."""

    def __init__(self, clock: Clock, manual: Callable[[], bool]) -> None:
        self._clock = clock
        self._manual = manual
        self._pausing: dict[str, asyncio.Event] = {}
        self._hanging: dict[str, asyncio.Event] = {}

    async def pause(self, name: str, seconds: float) -> None:
        """What happens to the node or queued resource `name` goes on after `seconds`, or at its next step.

        Where it was told to hang, it doesn't go on at all, until it is released.
        """
        await self._pause(name, seconds)
        wanted = next((one for one in self._hanging if one in (name, name.rpartition("/")[2])), None)
        if wanted is not None:
            try:
                await self._hanging[wanted].wait()
            finally:  # also when a delete has interrupted it: it was this operation that was to hang
                self._hanging.pop(wanted, None)

    def hang(self, name: str) -> None:
        """The operation that runs on `name` (in full, or its id), or the next one, does not end."""
        self._hanging.setdefault(name, asyncio.Event())

    def hangs(self, name: str) -> bool:
        return name in self._hanging

    def release(self, name: str) -> None:
        """What hangs, or would have, goes on."""
        if name in self._hanging:
            self._hanging.pop(name).set()

    async def _pause(self, name: str, seconds: float) -> None:
        if not self._manual():
            if seconds:
                await self._clock.sleep(seconds)
            return
        self._pausing[name] = asyncio.Event()
        try:
            await self._pausing[name].wait()
        finally:
            self._pausing.pop(name, None)

    def step(self, name: str) -> bool:
        """Ends the pause of `name`; False when it makes none."""
        if name not in self._pausing:
            return False
        self._pausing.pop(name).set()
        return True

    def step_all(self) -> None:
        """Ends every pause that waits for a hand."""
        for name in list(self._pausing):
            self.step(name)
