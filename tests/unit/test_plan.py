"""What is wanted and what is there -> what to do about the nodes."""

from __future__ import annotations

import pytest

from tpufleet.cloud.port import FLEET_LABEL
from tpufleet.errors import UsageError
from tpufleet.model import (
    AwaitNode,
    CloudSpec,
    CreateNode,
    DeleteNode,
    Node,
    NodePool,
    NodeState,
    Snapshot,
    Spec,
    StartNode,
)
from tpufleet.names import FleetName, NodeName, Zone
from tpufleet.plan import plan_create, plan_delete, wanted_nodes

ZONE = Zone("us-central1-b")
POOL = NodePool(NodeName("tpu"), "v2-8", 2)
SPEC = Spec(FleetName("sherlock"), (POOL,), CloudSpec(zones=(ZONE,)))


def node(name: str, state: NodeState = NodeState.READY, accelerator: str = "v2-8") -> Node:
    return Node(name, ZONE, accelerator, state, "HEALTHY", f"id-{name}", ("127.77.1.1",), {FLEET_LABEL: "sherlock"})


def test_an_empty_cloud_gets_every_node_of_the_file() -> None:
    plan = plan_create(SPEC, Snapshot())
    assert plan.actions == (CreateNode(NodeName("tpu-0"), ZONE, POOL), CreateNode(NodeName("tpu-1"), ZONE, POOL))


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
    assert "tpu-0 is a v3-8" in plan.conflicts[0]


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
