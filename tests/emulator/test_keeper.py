"""The life of nodes with hosts that are only counted and a clock that is stepped by hand."""

from __future__ import annotations

import asyncio

from .rig import PARENT, ZONE
from .stage import NAME, WANTED, Stage


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


def test_what_an_earlier_version_has_stored_is_still_read(stage: Stage) -> None:
    """The shape before queued resources, service accounts and operations' kinds were there."""
    resource = WANTED | {
        "name": NAME,
        "acceleratorConfig": {"type": "V2", "topology": "2x2"},
        "state": "READY",
        "createTime": "2026-01-01T00:00:00.000000Z",
        "networkConfig": {"network": "default", "subnetwork": "default", "enableExternalIps": True},
        "schedulingConfig": {},
        "id": "1",
        "apiVersion": "V2",
        "multisliceNode": False,
    }
    name = f"{PARENT}/operations/operation-1"
    done = {"name": name, "target": NAME, "verb": "create", "created": resource["createTime"]}
    done |= {"ended": resource["createTime"], "error": None, "cancel_requested": False}
    done["response"] = {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", **resource}
    node = {"name": NAME, "label": "n", "resource": resource, "number": 7, "host_keys": ["AAAA"]}
    stage.store.save({"cloud": {"nodes": {NAME: node}, "operations": {name: done}}})

    async def story() -> None:
        keeper = stage.again()
        await keeper.resume()
        assert keeper.cloud.node(NAME).state == "READY"
        assert keeper.cloud.operations.get(name).wire()["response"]["@type"].endswith(".v2.Node")

    asyncio.run(story())
