"""The ledger of nodes: who was there from when to when, whatever the file looked like before."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from tpufleet.model import CloudSpec, Node, NodeState, Provider, Spec
from tpufleet.names import FleetName
from tpufleet.ops import ledger
from tpufleet.ops.fleet import Fleet

START = datetime(2026, 11, 21, 4, 0, tzinfo=UTC)
SPEC = Spec(FleetName("sherlock"))


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def node(uid: str = "one", accelerator: str = "v2-8", state: NodeState = NodeState.READY, **more: Any) -> Node:
    created = more.pop("created", "2026-11-21T04:00:00.123456789Z")
    addresses = more.pop("addresses", ("127.77.1.1",))
    return Node("tpu-0", "us-central1-b", accelerator, state, "HEALTHY", uid, addresses, {}, created, **more)


def seen(minutes: int, *nodes: Node, spec: Spec = SPEC) -> list[ledger.Entry]:
    return [ledger.entry_of(item, spec, at(minutes)) for item in nodes]


def test_a_node_is_written_down_with_its_hosts_chips_and_price() -> None:
    [entry] = ledger.merge([], seen(3, node("one", "v3-32", addresses=("a", "b", "c", "d"))), at(3))
    assert entry == {
        "name": "tpu-0",
        "id": "one",
        "zone": "us-central1-b",
        "accelerator": "v3-32",
        "spot": False,
        "created": "2026-11-21T04:00:00.123Z",
        "seen": "2026-11-21T04:03:00.000Z",
        "gone": None,
        "hosts": ["tpu-0-w0", "tpu-0-w1", "tpu-0-w2", "tpu-0-w3"],
        "chips_per_host": 4,
        "usd_per_hour": 32.0,
    }


@pytest.mark.parametrize(
    ("cloud", "accelerator", "spot", "price"),
    [
        (CloudSpec(), "v2-8", False, 4.5),
        (CloudSpec(), "v3-8", True, 2.4),
        (CloudSpec(), "v2-8", True, None),  # a price that isn't known
        (CloudSpec(), "v99-8", False, None),
        (CloudSpec(trc=True), "v2-8", True, 0.0),
        (CloudSpec(provider=Provider.INVENTORY), "v2-8", False, None),
    ],
)
def test_what_is_free_or_unknown_has_no_price(
    cloud: CloudSpec, accelerator: str, spot: bool, price: float | None
) -> None:
    spec = Spec(FleetName("sherlock"), cloud=cloud)
    [entry] = seen(0, node("one", accelerator, spot=spot), spec=spec)
    assert entry["usd_per_hour"] == price


def test_a_node_that_vanished_is_gone_since_that_was_noticed_and_stays_so() -> None:
    entries = ledger.merge([], seen(0, node()), at(0))
    entries = ledger.merge(entries, seen(5, node()), at(5))
    entries = ledger.merge(entries, [], at(6))
    [entry] = ledger.merge(entries, [], at(60))
    assert (entry["seen"], entry["gone"]) == (ledger.shown(at(5)), ledger.shown(at(6)))


def test_a_node_made_anew_under_the_same_name_is_another_one() -> None:
    entries = ledger.merge([], seen(0, node("one")), at(0))
    entries = ledger.merge(entries, seen(9, node("two", created="2026-11-21T04:09:00Z")), at(9))
    assert [(entry["id"], entry["gone"]) for entry in entries] == [("one", ledger.shown(at(9))), ("two", None)]


def test_a_preempted_node_costs_nothing_though_it_is_listed_still() -> None:
    entries = ledger.merge([], seen(0, node()), at(0))
    for minute in (5, 50):
        entries = ledger.merge(entries, seen(minute, node(state=NodeState.PREEMPTED, addresses=())), at(minute))
    [entry] = entries
    assert (entry["seen"], entry["gone"]) == (ledger.shown(at(0)), ledger.shown(at(5)))
    assert entry["hosts"] == ["tpu-0-w0"]


def test_a_node_that_was_only_overlooked_is_there_again() -> None:
    entries = ledger.merge([], seen(0, node()), at(0))
    entries = ledger.merge(entries, [], at(1))
    [entry] = ledger.merge(entries, seen(2, node()), at(2))
    assert (entry["seen"], entry["gone"]) == (ledger.shown(at(2)), None)


def test_of_very_many_nodes_the_longest_gone_are_forgotten() -> None:
    many = [node(f"n{index:05}") for index in range(ledger.MOST_NODES)]
    entries = ledger.merge([], seen(0, *many[:100]), at(0))
    entries = ledger.merge(entries, seen(1, *many[100:]), at(1))
    entries = ledger.merge(entries, seen(2, node("new"), *many[100:]), at(2))
    assert len(entries) == ledger.MOST_NODES
    assert sum(entry["gone"] is None for entry in entries) == ledger.MOST_NODES - 99
    assert "new" in {entry["id"] for entry in entries}


def fleet_in(folder: Path, told: list[str], *, dry_run: bool = False) -> Fleet:
    """What `remember` needs of a fleet."""
    paths = SimpleNamespace(artifacts=folder / "artifacts/sherlock")
    say = lambda _subject, text, _state: told.append(text)  # noqa: E731
    return cast("Fleet", SimpleNamespace(spec=SPEC, paths=paths, dry_run=dry_run, say=say))


def stored(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "artifacts/sherlock/nodes.json").read_text())


def test_what_was_seen_is_in_the_file(tmp_path: Path) -> None:
    fleet = fleet_in(tmp_path, [])
    ledger.remember(fleet, [node(), node("")])  # the second is still in the making
    assert (stored(tmp_path)["schema"], stored(tmp_path)["fleet"]) == (1, "sherlock")
    assert [entry["id"] for entry in stored(tmp_path)["nodes"]] == ["one"]
    ledger.remember(fleet, [])
    assert stored(tmp_path)["nodes"][0]["gone"] >= stored(tmp_path)["nodes"][0]["seen"]


def test_without_nodes_or_only_planned_nothing_is_written(tmp_path: Path) -> None:
    ledger.remember(fleet_in(tmp_path, []), [])
    ledger.remember(fleet_in(tmp_path, [], dry_run=True), [node()])
    assert not (tmp_path / "artifacts").exists()


def test_a_place_that_can_not_be_written_to_is_told_and_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file")
    told: list[str] = []
    ledger.remember(fleet_in(tmp_path, told), [node()])
    assert len(told) == 1
    assert told[0].startswith("the nodes' times could not be written down")


ANYTHING = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2))
FIELDS = sorted(seen(0, node())[0])


@settings(deadline=None, max_examples=50)  # each writes to the disk
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, ANYTHING)), max_size=4))
def test_whatever_stands_in_the_file_the_nodes_of_now_are_written(changes: list[dict[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fleet = fleet_in(Path(folder), [])
        ledger.remember(fleet, [node()])
        sound = stored(Path(folder))["nodes"][0]
        spoilt = [{**sound, "id": str(index), **change} for index, change in enumerate(changes)]
        (Path(folder) / "artifacts/sherlock/nodes.json").write_text(json.dumps({"nodes": spoilt}))
        ledger.remember(fleet, [node()])
        assert "one" in {entry["id"] for entry in stored(Path(folder))["nodes"]}


@pytest.mark.parametrize("content", ["", "[]", '{"nodes": 3}', '{"nodes": [3, {"id": "x"}]}', "[" * 99_999, '{"nodes"'])
def test_a_broken_file_is_begun_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "artifacts/sherlock/nodes.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    ledger.remember(fleet_in(tmp_path, []), [node()])
    assert [entry["id"] for entry in stored(tmp_path)["nodes"]] == ["one"]
