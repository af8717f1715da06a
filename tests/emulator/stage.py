"""A keeper whose hosts are only counted, on a clock that is stepped by hand."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tpufleet.emulator.hosts import Place, Settings, View
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.store import Store

from .rig import PARENT, RUNTIME

WANTED = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME}
NAME = f"{PARENT}/nodes/n"


class SteppedClock:
    """Time stands still until `step`."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        self._sleepers: list[tuple[datetime, asyncio.Event]] = []

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self._now + timedelta(seconds=seconds), woken))
        await woken.wait()

    async def step(self, seconds: float) -> None:
        """Moves on, and lets everything happen that is due."""
        await settle()
        self._now += timedelta(seconds=seconds)
        for moment, woken in self._sleepers:
            if moment <= self._now:
                woken.set()
        await settle()


async def settle() -> None:
    """Lets everything happen that is due."""
    for _ in range(100):
        await asyncio.sleep(0)


@dataclass
class CountedHost:
    place: Place
    done: list[str] = field(default_factory=list)
    fails: bool = False

    def host_key(self) -> str:
        return "AAAA"

    async def boot(self, listening: socket.socket) -> None:
        listening.close()
        if self.fails:
            raise OSError("no space left")
        self.done.append("boot")

    async def halt(self) -> None:
        self.done.append("halt")

    async def wipe(self) -> None:
        self.done.append("wipe")

    def refresh(self) -> None:
        self.done.append("refresh")


@dataclass
class Stage:
    """A keeper, its clock and the hosts it made; `again` is the keeper after a restart of the daemon."""

    store: Store
    clock: SteppedClock = field(default_factory=SteppedClock)
    hosts: list[CountedHost] = field(default_factory=list)
    fails: bool = False

    def __post_init__(self) -> None:
        self.keeper = self.again()

    def again(self) -> Keeper:
        def make(place: Place, view: View) -> CountedHost:
            del view
            self.hosts.append(CountedHost(place, fails=self.fails))
            return self.hosts[-1]

        return Keeper(self.store, self.clock, Settings(create_seconds=10), 22222, make)

    def state(self) -> str:
        return self.keeper.cloud.node(NAME).state
