"""The life of queued resources: waits for room, brings the nodes up, and is suspended when one of them is lost.

Everything here is work in turn on the queued resource's name, as `keeper.py`'s is on a node's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tpufleet.emulator.nodes import NodeRecord
from tpufleet.emulator.operations import Operation
from tpufleet.emulator.queued import WAITING, QueuedRecord
from tpufleet.emulator.wire import ApiError, bad_request

if TYPE_CHECKING:
    from tpufleet.emulator.keeper import Keeper

# The wording is ours: Google documents that such a request is FAILED, not what it says.
EXPIRED = "The queued resource request expired: no capacity was found within its valid interval."
LOST = "A node of the queued resource did not come up."


class Queue:
    """Carries out what is asked of queued resources; `keeper` does it to their nodes."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._cloud = keeper.cloud

    # What the API asks for. Each returns at once, with the operation that now runs.

    def create(
        self, project: str, zone: str, queued_id: str, body: Any, *, version: str = "v2", request_id: str = ""
    ) -> Operation:
        """The same `request_id` again is the same operation, whatever became of it."""
        parent = f"projects/{project}/locations/{zone}"
        if before := self._cloud.operations.asked_before("create", parent, request_id):
            return before
        operation, record = self._cloud.enqueue(project, zone, queued_id, body, version=version, request_id=request_id)
        self._keeper.book.queued(record.name, self._keeper.clock.now())
        self._do(record, self._live)
        return operation

    def delete(self, name: str, request_id: str = "", *, force: bool) -> Operation:
        parent = name.partition("/queuedResources/")[0]
        if before := self._cloud.operations.asked_before("delete", parent, request_id):
            return before
        operation = self._cloud.dequeue(name, request_id, force=force)
        self._keeper.turns.interrupt(name)
        self._do(self._cloud.queued_resource(name), self._remove)
        return operation

    def reset(self, name: str) -> Operation:
        """Every host of its nodes boots again."""
        operation = self._cloud.reset(name)
        self._do(self._cloud.queued_resource(name), self._reset)
        return operation

    def lost(self, node: NodeRecord, initiator: str) -> None:
        """A node is being deleted (USER) or was taken away (SERVICE): its queued resource is suspended for good.

        With it go its other nodes, as the slices of one request are of no use alone.
        """
        record = self._cloud.queued.get(node.queued_resource or "")
        if record and record.state in ("PROVISIONING", "ACTIVE"):
            self._keeper.turns.interrupt(record.name)
            record.became("SUSPENDING", initiator)
            self._do(record, self._suspend)

    async def suspend(self, name: str) -> None:
        """The service takes the nodes of an ACTIVE queued resource back; returns when it is SUSPENDED."""
        record = self._cloud.queued_resource(name)
        if record.state != "ACTIVE":
            raise bad_request(f"suspend is not supported while in state {record.state}")
        record.became("SUSPENDING")
        await self._do(record, self._suspend)

    def resume(self) -> None:
        """After a start of the daemon, when the nodes are up: every queued resource goes on."""
        for record in self._cloud.queued.values():
            match record.state:
                case "SUSPENDING":
                    self._do(record, self._suspend)
                case "DELETING":
                    self._do(record, self._remove)
                case "FAILED" | "SUSPENDED":
                    pass
                case _:
                    self._do(record, self._live)

    # The work itself.

    async def _live(self, record: QueuedRecord) -> None:
        """From any state before ACTIVE to ACTIVE, or to FAILED."""
        if record.state == "CREATING":
            await self._keeper.steps.pause(record.name, 0)
            record.became("ACCEPTED")
            self._cloud.queued_done(record)
            self._keeper.save()
        try:
            if record.state in WAITING:
                await self._provision(record)
            await self._await_nodes(record)
        except ApiError as error:
            record.became("FAILED", error=error)
            await self._take_nodes(record)
        self._keeper.save()

    async def _provision(self, record: QueuedRecord) -> None:
        """Waits for the start time, then for room; PROVISIONING afterwards. Raises ApiError when time is up."""
        start, end = record.window()
        clock = self._keeper.clock
        if start and (early := (start - clock.now()).total_seconds()) > 0:
            record.became("WAITING_FOR_RESOURCES")
            await clock.sleep(early)
        await self._keeper.steps.pause(record.name, 0)
        while not (nodes := self._granted(record)):
            left = (end - clock.now()).total_seconds() if end else None
            if left is not None and left <= 0:
                raise ApiError("DEADLINE_EXCEEDED", EXPIRED)
            record.became("WAITING_FOR_RESOURCES")
            self._keeper.save()
            freed = self._cloud.capacity.wait()
            await (freed if left is None else _first(freed, clock.sleep(left)))
        record.became("PROVISIONING")
        for node in nodes:
            self._keeper.provision(node)

    def _granted(self, record: QueuedRecord) -> list[NodeRecord]:
        """Its nodes, now CREATING; none while there is no room. Raises ApiError when it can never have them."""
        try:
            return self._cloud.grant(record)
        except ApiError as error:
            if error.status in ("RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"):  # no room, free or reserved
                return []
            raise

    async def _await_nodes(self, record: QueuedRecord) -> None:
        await asyncio.gather(*(self._keeper.turns.settled(name) for name in record.nodes))
        found = [self._cloud.nodes[name] for name in record.nodes if name in self._cloud.nodes]
        if len(found) < len(record.nodes) or any(node.state != "READY" for node in found):
            raise ApiError("INTERNAL", LOST)
        record.became("ACTIVE")

    async def _suspend(self, record: QueuedRecord) -> None:
        await self._keeper.steps.pause(record.name, 0)
        await self._take_nodes(record)
        record.became("SUSPENDED", record.resource["state"]["stateInitiator"])
        self._cloud.queued_done(record)
        self._keeper.save()

    async def _remove(self, record: QueuedRecord) -> None:
        await self._keeper.steps.pause(record.name, 0)
        await self._take_nodes(record)
        self._cloud.dequeued(record)
        self._keeper.book.dequeued(record.name, self._keeper.clock.now())
        self._keeper.save()

    async def _take_nodes(self, record: QueuedRecord) -> None:
        """Deletes the nodes that are left, and waits until all are absent."""
        nodes = [self._cloud.nodes[name] for name in record.nodes if name in self._cloud.nodes]
        ours = [node for node in nodes if node.queued_resource == record.name]
        for node in ours:
            if node.state != "DELETING":
                self._keeper.delete(node.name)
        await asyncio.gather(*(self._keeper.turns.settled(node.name) for node in ours))

    async def _reset(self, record: QueuedRecord) -> None:
        await asyncio.gather(*(self._keeper.restart(name) for name in record.nodes))
        self._cloud.queued_done(record)
        self._keeper.save()

    def _do(self, record: QueuedRecord, work: Any) -> asyncio.Task[None]:
        self._keeper.save()
        return self._keeper.turns.do(record.name, work, record)


async def _first(*works: Awaitable[None]) -> None:
    """Until one of `works` is done; the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
