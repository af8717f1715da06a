"""The life of nodes with hosts that are only counted and a clock that is stepped by hand."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tpufleet.emulator.hosts import Place, Settings, View
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.store import Store

from .rig import PARENT, RUNTIME, ZONE

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
        await _settle()
        self._now += timedelta(seconds=seconds)
        for moment, woken in self._sleepers:
            if moment <= self._now:
                woken.set()
        await _settle()


async def _settle() -> None:
    for _ in range(50):
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


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    store = Store(tmp_path)
    yield Stage(store)
    store.release()


def test_a_node_is_creating_until_its_time_has_come(stage: Stage) -> None:
    async def story() -> None:
        operation = stage.keeper.create("p", ZONE, "n", WANTED)
        await stage.clock.step(9)
        assert (stage.state(), operation.ended) == ("CREATING", None)
        await stage.clock.step(1)
        assert stage.state() == "READY"
        assert operation.wire()["response"]["state"] == "READY"

    asyncio.run(story())


def test_a_node_is_billed_from_ready_to_delete(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.create("p", ZONE, "n", WANTED)
        await stage.clock.step(10)
        await stage.clock.step(60)
        stage.keeper.delete(NAME)
        await stage.clock.step(5)
        assert [node["nodeSeconds"] for node in stage.keeper.book.wire(stage.clock.now())["nodes"]] == [60]
        assert stage.hosts[0].done == ["boot", "halt", "wipe"]

    asyncio.run(story())


def test_a_node_whose_host_does_not_boot_is_an_error_of_the_operation_and_no_node(stage: Stage) -> None:
    async def story() -> None:
        stage.fails = True
        operation = stage.keeper.create("p", ZONE, "n", WANTED)
        await stage.clock.step(10)
        assert operation.wire()["error"] == {"code": 13, "message": "Internal error: no space left"}
        assert not stage.keeper.cloud.nodes
        assert stage.hosts[0].done == ["halt", "wipe"]

    asyncio.run(story())


def test_a_delete_during_the_create_cancels_it(stage: Stage) -> None:
    async def story() -> None:
        creating = stage.keeper.create("p", ZONE, "n", WANTED)
        await stage.clock.step(1)
        deleting = stage.keeper.delete(NAME)
        await stage.clock.step(100)
        assert creating.wire()["error"]["code"] == 1
        assert "response" in deleting.wire()
        assert not stage.keeper.cloud.nodes

    asyncio.run(story())


def test_work_that_a_killed_daemon_left_is_finished_by_the_next(stage: Stage) -> None:
    async def first() -> None:
        stage.keeper.create("p", ZONE, "n", WANTED)
        stage.keeper.create("p", ZONE, "gone", WANTED)
        await stage.clock.step(1)
        stage.keeper.delete(f"{PARENT}/nodes/gone")

    async def second() -> None:
        keeper = stage.again()
        await keeper.resume()
        assert [(node.name, node.state) for node in keeper.cloud.nodes.values()] == [(NAME, "READY")]
        assert all(operation.ended for operation in keeper.cloud.operations.inside("p", "-"))

    asyncio.run(first())
    asyncio.run(second())


def test_what_is_asked_of_one_node_happens_in_turn(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.create("p", ZONE, "n", WANTED)
        await stage.clock.step(10)
        await asyncio.gather(stage.keeper.crash("n-w0"), stage.keeper.revive("n-w0"), stage.keeper.crash("n-w0"))
        assert stage.hosts[0].done == ["boot", "halt", "halt", "boot", "halt"]

    asyncio.run(story())
