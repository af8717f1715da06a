"""The API's methods on queued resources, in v2 and v2alpha1."""

from __future__ import annotations

from tpufleet.emulator import schema
from tpufleet.emulator.calls import Call
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.queued import QueuedRecord
from tpufleet.emulator.wire import Json


class QueuedResources:
    """One method per API method: takes the call, returns the answer's JSON, raises ApiError."""

    def __init__(self, keeper: Keeper) -> None:
        self._queue = keeper.queue
        self._cloud = keeper.cloud

    async def list(self, call: Call) -> Json:
        return call.page([_shown(one, call) for one in self._cloud.queued_in(*call.scope)], "queuedResources")

    async def get(self, call: Call) -> Json:
        return _shown(self._cloud.queued_resource(call.name("queuedResources")), call)

    async def create(self, call: Call) -> Json:
        options = {"version": call.version, "request_id": call.query("requestId")}
        return call.shown(self._queue.create(*call.scope, call.query("queuedResourceId"), await call.body(), **options))

    async def delete(self, call: Call) -> Json:
        force = call.flag("force")
        return call.shown(self._queue.delete(call.name("queuedResources"), call.query("requestId"), force=force))

    async def reset(self, call: Call) -> Json:
        await call.message({})
        return call.shown(self._queue.reset(call.name("queuedResources")))


def _shown(record: QueuedRecord, call: Call) -> Json:
    return schema.view("QueuedResource", record.wire(), call.version)
