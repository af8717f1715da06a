"""What a zone has and a project may use: stock-outs, quotas, and the room that others leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.api_core import exceptions

from tpufleet.accelerators import lookup
from tpufleet.emulator.capacity import Capacity, Use
from tpufleet.emulator.wire import ApiError, Json

from .rig import PARENT, RUNTIME, ZONE, Rig
from .stage import WANTED, Stage, settle

STOCKOUT = 'There is no more capacity in the zone "us-central1-b"; you can try in another zone'
SPOT = WANTED | {"schedulingConfig": {"spot": True}}


def create(stage: Stage, name: str, wanted: Json = WANTED) -> Any:
    return stage.keeper.create("p", ZONE, name, wanted)


def test_a_create_without_room_is_an_operation_that_fails_and_no_node(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, None, 0)
        operation = create(stage, "n")
        assert (stage.state(), operation.ended) == ("CREATING", None)  # as at Google, the call itself succeeds
        await settle()
        error = operation.wire()["error"]
        assert error["code"] == 8
        assert error["message"].startswith(STOCKOUT)
        assert "[EID: 0x" in error["message"]
        assert not stage.keeper.cloud.nodes

    asyncio.run(story())


def test_a_reserved_node_without_room_is_told_of_its_reservation(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, None, 0)
        operation = create(stage, "n", WANTED | {"schedulingConfig": {"reserved": True}})
        await settle()
        error = operation.wire()["error"]
        assert (error["code"], error["message"][:31]) == (9, "Insufficient reserved capacity.")

    asyncio.run(story())


def test_the_limit_of_one_type_leaves_the_others_alone(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, "v2-8", 4)
        first, second, other = (
            create(stage, "a"),
            create(stage, "b"),
            create(stage, "c", WANTED | {"acceleratorType": "v3-8"}),
        )
        await stage.clock.step(10)
        assert ["error" in one.wire() for one in (first, second, other)] == [False, True, False]

    asyncio.run(story())


def test_a_stopped_node_gives_its_chips_back_and_may_not_find_others(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, None, 4)
        create(stage, "n")
        await stage.clock.step(10)
        stage.keeper.stop(f"{PARENT}/nodes/n")
        await settle()
        create(stage, "other")
        await stage.clock.step(10)
        starting = stage.keeper.start(f"{PARENT}/nodes/n")
        await settle()
        assert starting.wire()["error"]["message"].startswith(STOCKOUT)
        assert stage.state() == "STOPPED"

    asyncio.run(story())


def test_a_preempted_node_leaves_its_chips_but_not_its_quota(stage: Stage) -> None:
    async def story() -> None:
        stage.keeper.capacity.limit(ZONE, None, 4)
        stage.keeper.capacity.quota("TPUV2sPerProjectPerRegionForTPUAPI", "us-central1", 8)
        create(stage, "n")
        await stage.clock.step(10)
        await stage.keeper.preempt(f"{PARENT}/nodes/n")
        with pytest.raises(ApiError, match="has been exceeded"):
            create(stage, "m")
        create(stage, "m", SPOT)  # another quota
        await stage.clock.step(10)
        assert stage.keeper.cloud.node(f"{PARENT}/nodes/m").state == "READY"

    asyncio.run(story())


@pytest.mark.parametrize("ended", ["ACTIVE", "SUSPENDED", "WAITING_FOR_RESOURCES"])
def test_a_queued_resource_eats_quota_in_every_state_and_once_only(stage: Stage, ended: str) -> None:
    async def story() -> None:
        metric = "TPUV2sPreemptiblePerProjectPerZoneForTPUAPI"
        stage.keeper.capacity.quota(metric, ZONE, 16)
        if ended == "WAITING_FOR_RESOURCES":
            stage.keeper.capacity.limit(ZONE, None, 0)
        queued = {"tpu": {"nodeSpec": [{"nodeId": "n", "node": WANTED}]}, "spot": {}}
        stage.keeper.queue.create("p", ZONE, "q", queued)
        await stage.clock.step(10)
        if ended == "SUSPENDED":
            await stage.keeper.queue.suspend(f"{PARENT}/queuedResources/q")
        assert stage.keeper.cloud.queued_resource(f"{PARENT}/queuedResources/q").state == ended
        create(stage, "a", SPOT)
        with pytest.raises(ApiError) as refused:
            create(stage, "b", SPOT)
        assert refused.value.message == f"Quota limit '{metric}' has been exceeded. Limit: 16 in zone {ZONE}."
        stage.keeper.create("another", ZONE, "b", SPOT)  # the limit is each project's own

    asyncio.run(story())


@pytest.mark.parametrize(
    ("name", "spot", "metric"),
    [
        ("v2-32", True, "TPUV2sPreemptiblePodPerProjectPerRegionForTPUAPI"),
        ("v4-8", True, "TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI"),
        ("v5litepod-4", False, "TPUV5sLitepodServingPerProjectPerRegionForTPUAPI"),
        ("v5litepod-16", True, "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI"),
        ("v5p-8", False, "TPUV5PPerProjectPerRegionForTPUAPI"),
        ("v6e-8", True, "TPUV6EPreemptiblePerProjectPerRegionForTPUAPI"),
    ],
)
def test_quotas_have_the_names_that_users_see(name: str, spot: bool, metric: str) -> None:
    use = Use("us-central1-a", lookup(name), spot=spot)
    assert use.metric("Region") == metric
    assert use.amount == int(name.rpartition("-")[2])


def test_limits_survive_the_daemon_and_can_be_lifted() -> None:
    capacity = Capacity()
    capacity.limit(ZONE, "v2-8", 0)
    capacity.quota("M", "us-central1", 3)
    again = Capacity(capacity.stored())
    wanted = [Use(ZONE, lookup("v2-8"))]
    with pytest.raises(ApiError):
        again.check_room(wanted, [])
    again.limit(ZONE, "v2-8", None)
    again.check_room(wanted, [])
    with pytest.raises(ApiError, match="Location nowhere is not found"):
        again.limit("nowhere", None, 0)


def test_googles_client_hears_of_an_exhausted_quota_at_once(rig: Rig) -> None:
    metric = "TPUV2sPerProjectPerRegionForTPUAPI"
    assert rig.http("POST", f"/emulator/faults/quota/{metric}@us-central1", {"limit": 0})[0] == 200
    with pytest.raises(exceptions.TooManyRequests) as refused:
        rig.client.create_node(parent=PARENT, node=rig.wanted(), node_id="n", timeout=10)
    assert f"Quota limit '{metric}' has been exceeded. Limit: 0 in region us-central1." in str(refused.value)
    body = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME}
    detail = rig.http("POST", f"/v2/{PARENT}/nodes?nodeId=n", body)[1]["error"]["details"][0]
    assert detail["@type"] == "type.googleapis.com/google.rpc.QuotaFailure"
    assert detail["violations"][0]["description"] == f"Quota '{metric}' exhausted. Limit 0 in region us-central1"
    assert rig.names() == []
