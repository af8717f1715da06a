"""Which runs are lost with their hosts, and what `watch` does about nodes."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from tpufleet import labels
from tpufleet.actions import Action, CreateNode, DeleteNode
from tpufleet.model import CloudSpec, Host, HostView, Node, NodePool, NodeState, Snapshot, Spec
from tpufleet.names import Duration, FleetName, HostName, NodeName, Zone
from tpufleet.ops.mend import REMADE, UNWELL, UNWELL_LIMIT_S, Mending, mend
from tpufleet.ops.planned import planned, stored_code, stored_run
from tpufleet.ops.recover import closed, lost_runs
from tpufleet.state.store import Placement

ZONE = Zone("us-central1-b")
POOL = NodePool(NodeName("tpu"), "v2-8", 1)
SPEC = Spec(FleetName("sherlock"), (POOL,), CloudSpec(zones=(ZONE,)))
NOW = 1_000_000.0
SENT = {"gpt": Placement("gpt", "tpu-0-w0", "one-w0", ZONE)}


def node(state: NodeState = NodeState.READY, uid: str = "one", **more: Any) -> Node:
    ours = {labels.FLEET: "sherlock", **more.pop("labels", {})}
    return Node("tpu-0", ZONE, "v2-8", state, more.pop("health", "HEALTHY"), uid, ("127.77.1.1",), ours, **more)


def view(uid: str = "one", *runs: str, heard: bool = True, chips: int = 4, **probe: Any) -> HostView:
    host = Host(HostName("tpu-0-w0"), "tpu-0", ZONE, 0, "127.77.1.1", 22, f"{uid}-w0", chips=4)
    if not heard:
        return HostView(host, error="no answer")
    found = [{"index": index, "state": "free", "person": probe.get("person")} for index in range(chips)]
    return HostView(host, probe={"chips": found, "runs": [{"id": run} for run in runs], **probe})


def lost(nodes: list[Node], views: list[HostView], **home: str) -> tuple[str, ...]:
    states = {run: {"state": state} for run, state in home.items()}
    return lost_runs(nodes, views, sent=SENT, home=states, zones=[ZONE])


@pytest.mark.parametrize("state", [NodeState.PREEMPTED, NodeState.TERMINATED, NodeState.DELETING])
def test_a_run_on_a_node_that_is_gone_is_lost(state: NodeState) -> None:
    assert lost([node(state)], []) == ("gpt",)


def test_a_run_is_lost_when_its_node_has_vanished_or_is_another_one_of_the_same_name() -> None:
    assert lost([], []) == ("gpt",)
    assert lost([node(uid="two")], [view("two")]) == ("gpt",)


@pytest.mark.parametrize("state", [NodeState.STOPPED, NodeState.REPAIRING, NodeState.RESTARTING, NodeState.UNKNOWN])
def test_a_machine_that_may_come_back_keeps_its_runs(state: NodeState) -> None:
    assert lost([node(state)], []) == ()


def test_a_run_on_a_silent_host_is_not_lost_nor_one_that_is_somewhere_nor_one_that_has_ended() -> None:
    assert lost([node()], [view(heard=False)]) == ()
    assert lost([node()], [view("one", "gpt")]) == ()
    assert lost([], [], gpt="done") == ()
    assert lost([], [], gpt="stopped") == ()


def test_a_run_that_never_reached_its_host_is_sent_again() -> None:
    assert lost([node()], [view()]) == ("gpt",)


def test_a_zone_that_is_not_looked_at_says_nothing_of_its_runs() -> None:
    sent = {"gpt": dataclasses.replace(SENT["gpt"], zone="mars-north1-a")}
    assert lost_runs([], [], sent=sent, home={}, zones=[ZONE]) == ()


def test_an_attempt_that_was_under_way_ended_by_the_loss_and_earlier_ones_stay() -> None:
    state = {"id": "gpt", "attempts": [{"n": 1, "ended": "t", "reason": "signal"}, {"n": 2, "ended": None}]}
    attempts = closed(state, datetime(2026, 11, 21, tzinfo=UTC))["attempts"]
    assert [(attempt["n"], attempt["reason"]) for attempt in attempts] == [(1, "signal"), (2, "preempted")]


def mending(
    nodes: list[Node], views: list[HostView], *, spec: Spec = SPEC, down: tuple[str, ...] = (), **marks: str
) -> Mending:
    known = {("tpu-0", mark): value for mark, value in marks.items()}
    return mend(spec, Snapshot(tuple(nodes), tuple(views)), known, down, NOW)


def words(actions: list[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_a_fleet_that_is_as_it_should_be_needs_nothing() -> None:
    found = mending([node()], [view()])
    assert (found.actions, found.marks, found.notes, found.bad_hosts) == ([], {}, [], set())


def test_a_preempted_node_is_deleted_and_made_anew_and_a_vanished_one_made_anew() -> None:
    assert words(mending([node(NodeState.PREEMPTED)], []).actions) == ["DeleteNode", "CreateNode"]
    assert words(mending([], []).actions) == ["CreateNode"]


def test_a_node_over_its_ttl_is_deleted_and_not_made_again() -> None:
    over = node(labels={labels.TTL: "60"}, created=datetime.fromtimestamp(NOW - 61, UTC).isoformat())
    found = mending([over], [view()])
    assert words(found.actions) == ["DeleteNode"]
    assert not found.left
    assert mending([], [], expires=f"{NOW - 1:.0f}").actions == []


def test_a_node_that_is_made_anew_ends_when_the_first_one_would_have() -> None:
    spec = dataclasses.replace(SPEC, nodes=(dataclasses.replace(POOL, ttl=Duration("8h")),))
    (action,) = mending([], [], spec=spec, expires=f"{NOW + 600:.0f}").actions
    assert isinstance(action, CreateNode)
    assert action.pool.ttl == "600s"


def test_a_node_that_would_have_to_go_within_a_minute_is_not_made_anew() -> None:
    found = mending([], [], expires=f"{NOW + 59:.0f}")
    assert found.actions == []
    assert found.left, "its time is not over yet"
    going = node(
        NodeState.DELETING, labels={labels.TTL: "60"}, created=datetime.fromtimestamp(NOW - 1, UTC).isoformat()
    )
    assert words(mending([going], []).actions) == ["DeleteNode"]


def test_what_a_person_deleted_stays_deleted() -> None:
    found = mending([], [], down=("tpu-0",))
    assert found.actions == []
    assert not found.left
    assert "taken down" in found.notes[0][1]


@pytest.mark.parametrize("bad", [view(chips=3), view(suspect="TPU initialisation failed twice")])
def test_a_bad_host_costs_its_node_once_and_is_then_left_alone(bad: HostView) -> None:
    first = mending([node()], [bad])
    assert words(first.actions) == ["DeleteNode", "CreateNode"]
    assert first.marks == {("tpu-0", REMADE): "one"}
    assert words(mending([node()], [bad], remade="one").actions) == ["DeleteNode", "CreateNode"], "it was cut off"
    second = mending([node()], [bad], remade="an earlier one")
    assert second.actions == []
    assert second.bad_hosts == {"tpu-0-w0"}
    assert "gets no runs" in second.notes[0][1]


def test_a_bad_host_on_which_a_person_works_is_left_alone() -> None:
    found = mending([node()], [view(chips=3, person="ada")])
    assert found.actions == []
    assert "ada" in found.notes[0][1]


def test_an_unhealthy_node_is_made_anew_only_when_it_is_silent_for_long() -> None:
    ill = node(health="UNHEALTHY_TENSORFLOW")
    assert mending([ill], [view()]).actions == []
    first = mending([ill], [view(heard=False)])
    assert first.actions == []
    assert first.marks == {("tpu-0", UNWELL): f"one {NOW:.0f}"}
    then = f"one {NOW - UNWELL_LIMIT_S:.0f}"
    assert words(mending([ill], [view(heard=False)], unwell=then).actions) == ["DeleteNode", "CreateNode"]
    assert mending([ill], [view()], unwell=then).marks == {("tpu-0", UNWELL): None}
    assert mending([node()], [view(heard=False)]).actions == [], "healthy and silent: perhaps only our line is cut"


def test_what_is_not_in_the_file_is_said_and_left() -> None:
    found = mending([node(), dataclasses.replace(node(uid="x"), name="tpu-7")], [view()])
    assert found.actions == []
    assert "not in the file" in found.notes[0][1]


def test_a_run_comes_out_of_the_journal_as_it_was_planned() -> None:
    import json
    from pathlib import Path

    from tpufleet.model import Code, JobSpec, RunSpec
    from tpufleet.names import ParamName

    job = JobSpec(("python", "x.py"), grid={ParamName("lr"): (0.1,)}, time_limit=Duration("8h"), retries=2)
    run = RunSpec("gpt-lr0.1", "gpt", {"lr": 0.1, "on": True, "n": 1}, ("python", "x.py"), {"A": "b"}, job)
    code = Code("0123456789ab", "f" * 40, ("true",), directory=Path("/code"))
    stored = json.loads(json.dumps([stored_run(run), stored_code(code)]))
    assert planned(Placement("gpt-lr0.1", "h", "i", spec=stored[0], code=stored[1])) == (run, code)
    assert planned(Placement("gpt-lr0.1", "h", "i")) is None


def test_deleting_is_asked_with_the_queued_resource() -> None:
    (first, _) = mending([node(queued="tpu-0")], [view(chips=3)]).actions
    assert isinstance(first, DeleteNode)
    assert first.queued == "tpu-0"
