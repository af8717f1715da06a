"""What is wanted and what is there -> what to do about the nodes."""

from __future__ import annotations

import dataclasses

import pytest

from tpufleet import labels
from tpufleet.actions import AwaitNode, CreateNode, DeleteNode, StartNode
from tpufleet.errors import UsageError
from tpufleet.model import CloudSpec, Node, NodePool, NodeState, Queued, QueuedState, Snapshot, Spec
from tpufleet.names import FleetName, NodeName, Zone
from tpufleet.plan import plan_create, plan_delete, plan_expired, plan_orphans, wanted_nodes

ZONE = Zone("us-central1-b")
POOL = NodePool(NodeName("tpu"), "v2-8", 2)
SPEC = Spec(FleetName("sherlock"), (POOL,), CloudSpec(zones=(ZONE,)))


def node(name: str, state: NodeState = NodeState.READY, accelerator: str = "v2-8") -> Node:
    return Node(name, ZONE, accelerator, state, "HEALTHY", f"id-{name}", ("127.77.1.1",), {labels.FLEET: "sherlock"})


def test_an_empty_cloud_gets_every_node_of_the_file() -> None:
    plan = plan_create(SPEC, Snapshot())
    assert plan.actions == tuple(CreateNode(NodeName(name), (ZONE,), POOL) for name in ("tpu-0", "tpu-1"))


def test_a_fleet_that_equals_the_file_needs_nothing() -> None:
    assert plan_create(SPEC, Snapshot((node("tpu-0"), node("tpu-1")))).actions == ()


@pytest.mark.parametrize("state", [NodeState.PREEMPTED, NodeState.TERMINATED, NodeState.DELETING])
def test_a_node_that_is_gone_is_deleted_and_made_anew_under_its_name(state: NodeState) -> None:
    plan = plan_create(SPEC, Snapshot((node("tpu-0", state), node("tpu-1"))))
    assert [type(action) for action in plan.actions] == [DeleteNode, CreateNode]
    assert {action.name for action in plan.actions} == {"tpu-0"}


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (NodeState.CREATING, AwaitNode),
        (NodeState.STARTING, AwaitNode),
        (NodeState.REPAIRING, AwaitNode),
        (NodeState.STOPPED, StartNode),
    ],
)
def test_a_node_on_its_way_is_awaited_and_a_stopped_one_started(state: NodeState, action: type) -> None:
    plan = plan_create(SPEC, Snapshot((node("tpu-0", state), node("tpu-1"))))
    assert [type(item) for item in plan.actions] == [action]


def test_a_node_the_file_dropped_is_deleted_and_marked_as_surplus() -> None:
    plan = plan_create(SPEC, Snapshot((node("tpu-0"), node("tpu-1"), node("tpu-2"))))
    assert plan.actions == (DeleteNode("tpu-2", ZONE, "not in the file", surplus=True),)


def test_another_type_under_the_same_name_is_a_conflict_not_a_replacement() -> None:
    plan = plan_create(SPEC, Snapshot((node("tpu-0", accelerator="v3-8"), node("tpu-1"))))
    assert plan.actions == ()
    assert "tpu-0 in us-central1-b is v3-8, the file wants v2-8" in plan.conflicts[0]


def test_every_node_state_has_an_answer() -> None:
    for state in NodeState:
        plan_create(SPEC, Snapshot((node("tpu-0", state),)))


def test_delete_takes_all_or_those_named() -> None:
    there = Snapshot((node("tpu-0"), node("tpu-1")))
    assert [action.name for action in plan_delete(there).actions] == ["tpu-0", "tpu-1"]
    assert [action.name for action in plan_delete(there, ["tpu-1"]).actions] == ["tpu-1"]


def test_deleting_a_node_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="tpu-9"):
        plan_delete(Snapshot((node("tpu-0"),)), ["tpu-0", "tpu-9"])


def test_nodes_are_named_by_pool_and_number() -> None:
    assert list(wanted_nodes(SPEC)) == ["tpu-0", "tpu-1"]


def queued(name: str, state: QueuedState, zone: str = ZONE) -> Queued:
    return Queued(name, zone, state, name, "v2-8", {labels.FLEET: "sherlock"})


@pytest.mark.parametrize(
    "state",
    [
        QueuedState.CREATING,
        QueuedState.ACCEPTED,
        QueuedState.WAITING_FOR_RESOURCES,
        QueuedState.PROVISIONING,
    ],
)
def test_a_node_that_waits_in_the_queue_is_awaited_there(state: QueuedState) -> None:
    plan = plan_create(SPEC, Snapshot((node("tpu-0"),), queued=(queued("tpu-1", state),)))
    assert plan.actions == (AwaitNode(NodeName("tpu-1"), ZONE, queued=True),)


@pytest.mark.parametrize("state", [QueuedState.FAILED, QueuedState.SUSPENDED, QueuedState.SUSPENDING])
def test_a_queued_resource_that_has_ended_is_deleted_with_its_node_and_asked_for_anew(state: QueuedState) -> None:
    there = Snapshot((node("tpu-0"), node("tpu-1", NodeState.PREEMPTED)), queued=(queued("tpu-1", state),))
    gone, made = plan_create(SPEC, there).actions
    assert isinstance(gone, DeleteNode)
    assert (gone.name, gone.queued) == ("tpu-1", "tpu-1")
    assert isinstance(made, CreateNode)


def test_a_queued_resource_whose_node_has_vanished_is_asked_for_anew() -> None:
    there = Snapshot((node("tpu-0"),), queued=(queued("tpu-1", QueuedState.ACTIVE),))
    assert [type(action) for action in plan_create(SPEC, there).actions] == [DeleteNode, CreateNode]


def test_the_same_name_in_two_zones_keeps_the_one_that_serves_and_deletes_the_other() -> None:
    twin = dataclasses.replace(node("tpu-0", NodeState.CREATING), zone="us-central1-a")
    plan = plan_create(SPEC, Snapshot((twin, node("tpu-0"), node("tpu-1"))))
    assert [(action.name, action.zone) for action in plan.actions] == [("tpu-0", "us-central1-a")]
    assert isinstance(plan.actions[0], DeleteNode)


def test_zones_that_are_known_to_have_the_type_are_asked_first() -> None:
    spec = dataclasses.replace(SPEC, cloud=CloudSpec(zones=(Zone("us-east1-d"), Zone("us-central1-c"), ZONE)))
    action = plan_create(spec, Snapshot()).actions[0]
    assert isinstance(action, CreateNode)
    assert action.zones == ("us-central1-c", "us-central1-b", "us-east1-d")


def adopted(name: str) -> Node:
    return dataclasses.replace(node(name), labels={labels.FLEET: "sherlock", labels.ADOPTED: "true"})


def test_an_adopted_node_is_no_surplus_and_goes_with_the_fleet() -> None:
    there = Snapshot((node("tpu-0"), node("tpu-1"), adopted("old")))
    assert plan_create(SPEC, there).actions == ()
    assert [action.name for action in plan_delete(there).actions] == ["old", "tpu-0", "tpu-1"]


def test_orphans_are_what_the_file_does_not_know() -> None:
    elsewhere = dataclasses.replace(node("tpu-0"), zone="europe-west4-a")
    there = Snapshot(
        (node("tpu-0"), elsewhere, node("tpu-7"), adopted("old")), queued=(queued("gone", QueuedState.FAILED),)
    )
    found = [(action.name, action.zone) for action in plan_orphans(SPEC, there).actions]
    assert found == [("gone", ZONE), ("tpu-0", "europe-west4-a"), ("tpu-7", ZONE)]


def test_what_has_outlived_its_ttl_is_known_by_its_label() -> None:
    mortal = {labels.FLEET: "sherlock", labels.TTL: "400"}
    old = dataclasses.replace(node("tpu-0"), labels=mortal, created="1970-01-01T00:10:00Z")
    there = Snapshot((old, node("tpu-1")))
    assert plan_expired(there, 999.0).actions == ()
    assert [action.name for action in plan_expired(there, 1000.0).actions] == ["tpu-0"]


def test_a_deletion_names_the_queued_resource_that_goes_along() -> None:
    there = Snapshot(
        (dataclasses.replace(node("tpu-0"), queued="tpu-0"),), queued=(queued("tpu-0", QueuedState.ACTIVE),)
    )
    (action,) = plan_delete(there).actions
    assert isinstance(action, DeleteNode)
    assert action.queued == "tpu-0"
