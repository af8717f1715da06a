"""Queued resources: their states by the clock and by hand, and what becomes of them when nodes are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

from tpufleet.emulator.hosts import Settings
from tpufleet.emulator.wire import ApiError, Json

from .rig import PARENT, RUNTIME, ZONE, Rig, until
from .stage import WANTED, Stage, settle

QUEUED = f"{PARENT}/queuedResources/q"


def body(**fields: Any) -> Json:
    return {"tpu": {"nodeSpec": [{"nodeId": "n", "node": WANTED}]}} | fields


def slices(count: int, **names: str) -> Json:
    return {"tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": count} | names, "node": WANTED}]}}


def create(stage: Stage, **fields: Any) -> None:
    stage.keeper.queue.create("p", ZONE, "q", body(**fields))


def state(stage: Stage) -> str:
    return stage.keeper.cloud.queued_resource(QUEUED).state


def told(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


async def active(stage: Stage) -> None:
    """The queued resource q with its node n, ACTIVE."""
    create(stage)
    await stage.clock.step(10)
    assert state(stage) == "ACTIVE"


def test_a_queued_resource_is_active_when_its_node_is_ready(stage: Stage) -> None:
    async def story() -> None:
        operation = stage.keeper.queue.create("p", ZONE, "q", body(spot={}))
        assert (state(stage), operation.ended) == ("CREATING", None)
        await stage.clock.step(9)
        node = stage.keeper.cloud.node(f"{PARENT}/nodes/n")
        assert operation.wire()["response"]["state"]["state"] == "ACCEPTED"  # the operation is about the queue alone
        assert (state(stage), node.state) == ("PROVISIONING", "CREATING")
        assert (node.queued_resource, node.use.spot) == (QUEUED, True)
        await stage.clock.step(1)
        assert (state(stage), node.state) == ("ACTIVE", "READY")

    told(story)


def test_several_slices_become_several_nodes(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.queue.create("p", ZONE, "q", slices(3, nodeIdPrefix="s"))
        await stage.clock.step(10)
        nodes = stage.keeper.cloud.nodes.values()
        assert [node.name.rpartition("/")[2] for node in nodes] == ["s-0", "s-1", "s-2"]
        assert all(node.resource["multisliceNode"] for node in nodes)
        shown = stage.keeper.cloud.queued_resource(QUEUED).wire()["tpu"]["nodeSpec"]
        assert [spec["nodeId"] for spec in shown] == ["s-0", "s-1", "s-2"]

    told(story)


def test_the_same_request_id_again_is_the_same_operation(stage: Stage) -> None:
    async def story() -> None:
        first = stage.keeper.queue.create("p", ZONE, "q", body(), request_id="r")
        await stage.clock.step(10)
        assert stage.keeper.queue.create("p", ZONE, "q", body(), request_id="r") is first
        with pytest.raises(ApiError, match="already exists"):
            stage.keeper.queue.create("p", ZONE, "q", body(), request_id="other")
        assert len(stage.keeper.cloud.queued) == 1

    told(story)


def test_a_request_waits_for_room_and_goes_on_when_there_is_some(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, None, 0)
        create(stage)
        await stage.clock.step(1000)
        assert (state(stage), stage.keeper.cloud.nodes) == ("WAITING_FOR_RESOURCES", {})
        stage.keeper.capacity.limit(ZONE, None, 4)
        await stage.clock.step(10)
        assert state(stage) == "ACTIVE"

    told(story)


def test_a_reservation_makes_its_nodes_reserved_ones(stage: Stage) -> None:
    async def story() -> None:
        create(stage, reservationName=f"projects/p/locations/{ZONE}/reservations/-")
        await stage.clock.step(10)
        assert stage.keeper.cloud.node(f"{PARENT}/nodes/n").use.reserved

    told(story)


def test_who_has_waited_longest_gets_the_room_that_a_deleted_node_leaves(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, "v2-8", 4)
        stage.keeper.create("p", ZONE, "first", WANTED)
        await stage.clock.step(10)
        create(stage)
        await settle()
        later = {"tpu": {"nodeSpec": [{"nodeId": "later", "node": WANTED}]}}
        stage.keeper.queue.create("p", ZONE, "later", later)
        await settle()
        stage.keeper.delete(f"{PARENT}/nodes/first")
        await stage.clock.step(0)
        await stage.clock.step(10)
        assert state(stage) == "ACTIVE"
        assert stage.keeper.cloud.queued_resource(f"{PARENT}/queuedResources/later").state == "WAITING_FOR_RESOURCES"

    told(story)


@pytest.mark.parametrize(
    "policy",
    [
        {"validUntilDuration": "3600s"},
        {"validUntilTime": "2026-01-01T01:00:00Z"},
        {"validInterval": {"startTime": "2026-01-01T00:30:00Z", "endTime": "2026-01-01T01:00:00Z"}},
    ],
)
def test_a_request_that_found_no_room_in_time_has_failed_and_stays_so(stage: Stage, policy: Json) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, None, 0)
        create(stage, queueingPolicy=policy)
        for _ in range(2):  # the start of an interval, then its end
            await stage.clock.step(1799)
        assert state(stage) == "WAITING_FOR_RESOURCES"
        await stage.clock.step(2)
        failed = stage.keeper.cloud.queued_resource(QUEUED).wire()["state"]
        assert (failed["state"], failed["failedData"]["error"]["code"]) == ("FAILED", 4)
        stage.keeper.capacity.limit(ZONE, None, None)
        await stage.clock.step(1000)
        assert state(stage) == "FAILED"

    told(story)


def test_a_request_does_not_begin_before_its_time(stage: Stage) -> None:
    async def story() -> None:
        create(stage, queueingPolicy={"validAfterDuration": "600s"})
        await stage.clock.step(599)
        assert (state(stage), stage.keeper.cloud.nodes) == ("WAITING_FOR_RESOURCES", {})
        await stage.clock.step(1)
        await stage.clock.step(10)
        assert state(stage) == "ACTIVE"

    told(story)


def test_a_preempted_node_suspends_its_queued_resource_for_good(stage: Stage) -> None:
    async def story() -> None:
        await active(stage)
        await stage.keeper.preempt(f"{PARENT}/nodes/n")
        await settle()
        assert stage.keeper.cloud.queued_resource(QUEUED).wire()["state"] == {
            "state": "SUSPENDED",
            "stateInitiator": "SERVICE",
            "suspendedData": {},
        }
        assert not stage.keeper.cloud.nodes
        await stage.clock.step(1000)
        assert state(stage) == "SUSPENDED"

    told(story)


def test_a_node_that_its_user_deletes_suspends_its_queued_resource(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.queue.create("p", ZONE, "q", slices(2))
        await stage.clock.step(10)
        stage.keeper.delete(f"{PARENT}/nodes/q-1")
        assert state(stage) == "SUSPENDING"
        await settle()
        assert stage.keeper.cloud.queued_resource(QUEUED).wire()["state"]["stateInitiator"] == "USER"
        assert (state(stage), stage.keeper.cloud.nodes) == ("SUSPENDED", {})

    told(story)


def test_a_node_deleted_while_it_is_provisioned_does_not_come_back(stage: Stage) -> None:
    async def story() -> None:
        create(stage)
        await stage.clock.step(5)
        stage.keeper.delete(f"{PARENT}/nodes/n")
        await stage.clock.step(100)
        assert (state(stage), stage.keeper.cloud.nodes) == ("SUSPENDED", {})

    told(story)


def test_a_slice_that_does_not_boot_is_a_failed_queued_resource_without_nodes(stage: Stage) -> None:
    async def story() -> None:
        stage.fails = True
        stage.keeper.queue.create("p", ZONE, "q", slices(2))
        await stage.clock.step(10)
        assert (state(stage), stage.keeper.cloud.nodes) == ("FAILED", {})

    told(story)


def test_an_active_one_is_deleted_by_force_only_and_its_nodes_with_it(stage: Stage) -> None:
    async def story() -> None:
        await active(stage)
        with pytest.raises(ApiError, match="can't be deleted while in state ACTIVE") as refused:
            stage.keeper.queue.delete(QUEUED, force=False)
        assert refused.value.status == "FAILED_PRECONDITION"
        operation = stage.keeper.queue.delete(QUEUED, force=True)
        assert (state(stage), operation.ended) == ("DELETING", None)
        await settle()
        assert operation.ended
        assert not stage.keeper.cloud.queued
        assert not stage.keeper.cloud.nodes

    told(story)


def test_one_that_waits_can_be_deleted_and_never_gets_anything(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, None, 0)
        create(stage)
        await settle()
        stage.keeper.queue.delete(QUEUED, force=False)
        stage.keeper.capacity.limit(ZONE, None, None)
        await stage.clock.step(100)
        assert not stage.keeper.cloud.queued
        assert not stage.keeper.cloud.nodes

    told(story)


def test_states_can_be_stepped_by_hand(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.change_settings(Settings(create_seconds=10, manual=True))
        create(stage)
        seen = [state(stage)]
        for _ in range(3):
            await stage.clock.step(1000)
            assert stage.keeper.step(QUEUED)
            await settle()
            seen.append(state(stage))
        assert seen == ["CREATING", "ACCEPTED", "PROVISIONING", "ACTIVE"]
        assert not stage.keeper.step(QUEUED)
        stage.keeper.queue.delete(QUEUED, force=True)
        await settle()
        assert state(stage) == "DELETING"
        stage.keeper.change_settings(Settings(create_seconds=10))  # by time again: all goes on
        await settle()
        assert not stage.keeper.cloud.queued

    told(story)


def test_a_queued_resource_goes_on_after_a_restart_of_the_daemon(stage: Stage) -> None:
    async def first() -> None:
        stage.keeper.capacity.limit(ZONE, None, 0)
        create(stage)
        await settle()

    async def second() -> None:
        keeper = stage.again()
        await keeper.resume()
        await settle()
        assert keeper.cloud.queued_resource(QUEUED).state == "WAITING_FOR_RESOURCES"
        keeper.capacity.limit(ZONE, None, None)
        await stage.clock.step(10)
        assert keeper.cloud.queued_resource(QUEUED).state == "ACTIVE"

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({}, "exactly one node_spec"),
        ({"tpu": {"nodeSpec": []}}, "exactly one node_spec"),
        ({"tpu": {"nodeSpec": [{"node": WANTED}]}}, "exactly one of node_id and multislice_params"),
        (slices(0), "invalid node_count 0"),
        (slices(2, nodeIdPrefix="Bad"), "invalid node id 'Bad-0'"),
        (body(spot={}, guaranteed={}), "only one of spot, guaranteed"),
        (body(queueingPolicy={"validUntilDuration": "1h"}), "invalid duration '1h'"),
        (body(queueingPolicy={"validUntilTime": "2025-01-01T00:00:00Z"}), "must end in the future"),
        (body(queueingPolicy={"validUntilTime": "tomorrow"}), "invalid time"),
        (body(bestEffort={}), 'Unknown name "bestEffort"'),  # v2alpha1 has it
        (
            {"tpu": {"nodeSpec": [{"nodeId": "n", "node": {"acceleratorType": "v4-8", "runtimeVersion": RUNTIME}}]}},
            "the accelerator v4-8 was not found in zone",
        ),
    ],
)
def test_a_request_that_can_never_be_met_is_refused(stage: Stage, wanted: Json, says: str) -> None:
    with pytest.raises(ApiError, match=says) as refused:
        stage.keeper.queue.create("p", ZONE, "q", wanted)
    assert refused.value.status == "INVALID_ARGUMENT"
    assert not stage.keeper.cloud.queued


def test_googles_client_sees_a_queued_resource_from_its_creation_to_its_end(shared: Rig, name: str) -> None:
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id=name, node=shared.wanted())
    wanted = tpu_v2.QueuedResource(
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]),
        spot=tpu_v2.QueuedResource.Spot(),
        queueing_policy=tpu_v2.QueuedResource.QueueingPolicy(valid_until_duration={"seconds": 3600}),
    )
    request = tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT, queued_resource_id=name, queued_resource=wanted, request_id=f"id-of-{name}"
    )
    made = shared.client.create_queued_resource(request, timeout=10)
    again = shared.client.create_queued_resource(request, timeout=10)
    assert made.operation.name == again.operation.name
    assert made.result(timeout=20).name == f"{PARENT}/queuedResources/{name}"
    queued = shared.await_queued(name, "ACTIVE")
    assert queued.queueing_policy.valid_until_duration.total_seconds() == 3600
    assert queued.name in [one.name for one in shared.client.list_queued_resources(parent=PARENT, timeout=10)]
    with pytest.raises(exceptions.BadRequest, match="stop is not supported"):
        shared.client.stop_node(tpu_v2.StopNodeRequest(name=f"{PARENT}/nodes/{name}"), timeout=10)
    node = shared.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10)
    assert (node.queued_resource, node.scheduling_config.spot) == (queued.name, True)

    reset = tpu_v2.ResetQueuedResourceRequest(name=queued.name)
    assert shared.client.reset_queued_resource(reset, timeout=10).result(timeout=20).name == queued.name
    with pytest.raises(exceptions.BadRequest, match="can't be deleted while in state ACTIVE"):
        shared.client.delete_queued_resource(name=queued.name, timeout=10)
    assert shared.http("POST", f"/emulator/faults/preempt/{name}")[0] == 200
    assert shared.await_queued(name, "SUSPENDED").state.state_initiator.name == "SERVICE"
    shared.client.delete_queued_resource(name=queued.name, timeout=10).result(timeout=20)
    with pytest.raises(exceptions.NotFound):
        shared.client.get_queued_resource(name=queued.name, timeout=10)
    until(lambda: name not in shared.names(), "its node is gone")


def test_a_stopped_daemon_keeps_what_waits_and_why(rig: Rig) -> None:
    assert rig.http("POST", f"/emulator/faults/stockout/{ZONE}", {"chips": 0})[0] == 200
    wanted = {"tpu": {"nodeSpec": [{"nodeId": "n", "node": WANTED}]}}
    assert rig.http("POST", f"/v2/{PARENT}/queuedResources?queuedResourceId=q", wanted)[0] == 200
    rig.await_queued("q", "WAITING_FOR_RESOURCES")
    assert rig.stop()
    rig.start()
    rig.await_queued("q", "WAITING_FOR_RESOURCES")
    assert rig.http("DELETE", f"/emulator/faults/stockout/{ZONE}")[0] == 200
    rig.await_queued("q", "ACTIVE")
    assert rig.names() == ["n"]
