"""Pure: what hosts are asked to make their accounts equal to; where people sit when hosts are gone; what is room."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.unit.hostile_people import ed25519
from tpufleet.errors import StateError
from tpufleet.model import CodeSpec, Host, HostView, JobSpec, Node, NodePool, NodeState, Person, RunSpec, Snapshot, Spec
from tpufleet.names import FleetName, HostName, NodeName, PersonName, Seat
from tpufleet.ops.accounts_wanted import (
    FIRST_UID,
    LAST_UID,
    Wanted,
    anybody_on,
    clone_of,
    digest,
    foreseen,
    gone_hosts,
    learned,
    learned_seats,
    numbered,
    wiped,
)
from tpufleet.ops.mend import mend
from tpufleet.ops.rooms import find_places, free_chips, with_waits
from tpufleet.people import moved, seats
from tpufleet.personkey import parse_person_key
from tpufleet.state.people import Remembered, recall, remember

NAMES = ("ada", "grace", "linus", "barbara", "edsger")
HOSTS = {HostName("t-0-w0"): 4, HostName("t-1-w0"): 4}


def person(index: int, seat: str | None = None, **fields: Any) -> Person:
    key = parse_person_key(ed25519(index + 1))
    return Person(PersonName(NAMES[index % 5]), key, seat=Seat(seat) if seat else None, **fields)


def host(number: int = 0) -> Host:
    return Host(HostName(f"t-{number}-w0"), f"t-{number}", "z", 0, "127.0.0.1", 22, f"id{number}-w0", chips=4)


def told(*people: Any, number: int = 0) -> HostView:
    """A host that tells of these people."""
    return HostView(host(number), probe={"people": list(people), "chips": [], "runs": []})


def entry(name: str, uid: object, seat: tuple[int, ...] = (), state: str = "here") -> dict[str, Any]:
    return {"name": name, "uid": uid, "seat": list(seat), "state": state}


def node(name: str, state: NodeState) -> Node:
    return Node(name, "z", "v2-8", state, "HEALTHY", "id", ("127.0.0.1",), {})


# --------------------------------------------------------------------------------------------------------------- uids


def test_uids_are_the_next_that_nobody_has_or_ever_had() -> None:
    first = numbered(["ada", "grace"], {})
    assert first == {"ada": FIRST_UID, "grace": FIRST_UID + 1}
    later = numbered(["grace", "linus"], first)  # ada is revoked; her files are still there under her uid
    assert later == {**first, "linus": FIRST_UID + 2}


def test_uids_are_learned_from_hosts_as_far_as_they_can_be_believed() -> None:
    views = [
        told(entry("ada", 20_005), entry("root", 0), entry("grace", 0), entry("../x", 20_001), number=0),
        told(entry("ada", 20_009), entry("linus", 20_005), entry("barbara", "20001"), "no entry", number=1),
        HostView(host(), error="silent"),
        HostView(host(), probe={"people": "none of it"}),
        HostView(host(), probe={}),
    ]
    assert learned(views) == {"ada": 20_005}
    assert learned([told(entry("ada", LAST_UID + 1))]) == {}


def test_seats_are_learned_from_hosts_too() -> None:
    strange = {**entry("linus", 20_003), "seat": ["../x"]}
    views = [
        told(entry("ada", 20_000, (2,)), entry("grace", 20_001), strange),
        told(entry("grace", 20_001, (0, 1, 2, 3)), entry("barbara", 20_004, (1,), "revoked"), number=1),
    ]
    assert learned_seats(views) == {"ada": "t-0-w0:2", "grace": "t-1-w0"}


def test_who_was_revoked_keeps_the_uid_but_has_no_account() -> None:
    view = told(entry("ada", 20_005, state="revoked"))
    assert learned([view]) == {"ada": 20_005}
    assert not anybody_on([view, HostView(host(), error="silent")])
    assert anybody_on([view, told(entry("grace", 20_000))])


def test_a_list_that_is_suddenly_empty_is_not_applied_by_itself() -> None:
    views = [told(entry("ada", 20_000), entry("grace", 20_001)), told(entry("linus", 20_002, state="revoked"))]
    assert "ada, grace have accounts" in str(wiped((), (), views))
    assert wiped((), ("ada", "grace"), views) is None  # by command
    assert wiped((person(0),), (), views) is None
    assert wiped((), (), views[1:]) is None


# ------------------------------------------------------------------------------------------------------------ requests


def test_a_host_is_asked_for_everybody_and_only_its_own_seats() -> None:
    people = (
        person(0, expires=datetime(2026, 12, 1, 18, tzinfo=UTC), share=True),
        person(1),
        person(2),
        person(3),
    )
    sitting = {"ada": Seat("t-0-w0:2"), "grace": Seat("t-1-w0:0"), "linus": Seat("t-1-w0")}
    clone = {"url": "https://example.org/code.git", "name": "code", "mirror": "0" * 12}
    wanted = Wanted("x", people, sitting, numbered(NAMES, {}), [{"name": "t-0-w0"}], clone)
    asked = {number: wanted.of(host(number)) for number in (0, 1)}
    assert asked[0]["host"] == "t-0-w0"
    assert [(p["name"], p["uid"], p["seat"]) for p in asked[0]["people"]] == [
        ("ada", 20_000, [2]),
        ("grace", 20_001, []),
        ("linus", 20_002, []),
        ("barbara", 20_003, []),
    ]
    assert [p["seat"] for p in asked[1]["people"]] == [[], [0], [0, 1, 2, 3], []]
    ada = asked[0]["people"][0]
    assert (ada["expires"], ada["share"], ada["key"]) == ("2026-12-01T18:00:00Z", True, ed25519(1))
    assert [bool(p["clone"]) for p in asked[0]["people"]] == [True, False, False, False]
    assert digest(asked[0]) == digest(json.loads(json.dumps(asked[0]))) != digest(asked[1])


def test_a_dry_run_foresees_what_becomes_of_each_account() -> None:
    wanted = Wanted("x", (person(0), person(1), person(2)), {"grace": Seat("t-0-w0:1")}, numbered(NAMES, {}))
    there = told(
        entry("ada", 20_000), entry("grace", 20_001, (0,)), entry("edsger", 20_009), entry("old", 20_010, (), "revoked")
    )
    assert dict(foreseen(wanted.of(host()), there)) == {
        "ada": "kept",
        "grace": "changed",
        "linus": "made",
        "edsger": "revoked",
    }


@pytest.mark.parametrize(
    ("repo", "url", "name"),
    [
        ("https://example.org/me/bitesizedGPT.git", "https://example.org/me/bitesizedGPT.git", "bitesizedGPT"),
        ("https://example.org/me/it.git/", "https://example.org/me/it.git/", "it"),
        ("git@example.org:code", "git@example.org:code", "code"),
        ("https://example.org/me/-x", None, None),
        ("https://example.org/..", None, None),
        ("code", None, "code"),
        (".", None, "fleet"),
        ("file:///srv/it.git", None, "it"),
        ("../a b", None, None),
    ],
)
def test_what_is_cloned_has_a_name_that_a_directory_may_have(repo: str, url: str | None, name: str | None) -> None:
    clone = clone_of(Spec(FleetName("x"), code=CodeSpec(repo)), Path("/home/me/fleet"))
    assert (clone and clone["url"], clone and clone["name"]) == (url, name)
    assert clone_of(Spec(FleetName("x")), Path("/home/me/fleet")) is None


# --------------------------------------------------------------------------------------------------------------- seats


def test_a_host_is_gone_when_its_node_is_not_there_and_will_not_come_by_itself() -> None:
    spec = Spec(FleetName("x"), nodes=(NodePool(NodeName("t"), "v2-8", count=4),))
    nodes = [
        node("t-0", NodeState.READY),
        node("t-1", NodeState.PREEMPTED),
        node("t-2", NodeState.REPAIRING),
    ]
    assert gone_hosts(spec, nodes) == {"t-1-w0", "t-3-w0"}


def test_only_those_of_a_gone_host_move_and_whose_seat_is_fixed_waits() -> None:
    people = [person(0), person(1, "t-1-w0:3"), person(2), person(3), person(4)]
    before = seats(people, HOSTS, {})
    assert {name for name, seat in before.seats.items() if seat.host == "t-1-w0"} >= {"grace"}
    after = seats(people, HOSTS, before.seats, gone=["t-1-w0"])
    there = {name for name, seat in before.seats.items() if seat.host == "t-0-w0"}
    assert not there & moved(before.seats, after.seats).keys()
    assert after.seats["grace"] == "t-1-w0:3"
    assert all(seat.host == "t-0-w0" for name, seat in after.seats.items() if name != "grace")
    assert seats(people, HOSTS, after.seats).seats == after.seats  # and they stay when it has come back


def test_without_room_they_wait_for_the_host_that_is_gone() -> None:
    people = [person(index, name) for index, name in enumerate(["t-0-w0", None, None])]
    before = seats(people, HOSTS, {})
    after = seats(people, HOSTS, before.seats, gone=["t-1-w0"])
    assert after == before
    assert not after.standing


def test_a_fleet_that_is_not_there_yet_seats_people_as_one_that_is() -> None:
    people = [person(index) for index in range(5)]
    assert seats(people, HOSTS, {}, gone=list(HOSTS)) == seats(people, HOSTS, {})


@given(st.sets(st.sampled_from(sorted(HOSTS))), st.sets(st.sampled_from(sorted(HOSTS))), st.integers(1, 5))
def test_nobody_ever_shares_a_chip(first: set[str], second: set[str], count: int) -> None:
    people = [person(index, "t-0-w0:1" if index == 1 else None) for index in range(count)]
    one = seats(people, HOSTS, {}, gone=first)
    two = seats(people, HOSTS, one.seats, gone=second)
    for seating in (one, two):
        assert len(set(seating.seats.values())) == count
    # whoever moved sat on a host that is gone now
    assert all(one.seats[name].host in second for name in moved(one.seats, two.seats))


# ---------------------------------------------------------------------------------------------------------------- room


def chips(*who: str | None) -> list[dict[str, Any]]:
    return [
        {"index": index, "state": "free", "seat": name, "person": None, "pid": None} for index, name in enumerate(who)
    ]


def seated_view(number: int, *who: str | None, runs: tuple[dict[str, Any], ...] = ()) -> HostView:
    return HostView(host(number), probe={"chips": chips(*who), "runs": list(runs)})


def test_a_seat_is_no_room_for_runs() -> None:
    job = JobSpec(command=("true",))
    runs = [RunSpec(f"j-seed{index}", "j", {}, ("true",), {}, job) for index in range(5)]
    views = [seated_view(0, "ada", "grace", None, "linus"), seated_view(1, None, None, None, None)]
    assert free_chips(views[0]) == (2,)
    placed, _ = find_places(runs, views, {}, away=0)
    assert sorted(placed.values()).count("t-0-w0") == 1
    full = [seated_view(0, "ada", "grace", "linus", "ada"), views[1]]
    assert set(find_places(runs, full, {}, away=0)[0].values()) == {"t-1-w0"}


def test_why_a_run_waits_names_whose_seats_the_chips_are() -> None:
    waiting = {"id": "j-seed0", "job": "j", "state": "queued", "reason": "no free chip", "submitted": "1"}
    view = seated_view(0, "ada", "ada", "grace", "linus", runs=(waiting,))
    (shown,) = with_waits(view, view.runs)
    assert shown["waits"] == "t-0-w0: 4 of 4 chips in use, 4 by ada and grace and linus"


# -------------------------------------------------------------------------------------------------------------- memory


def test_what_is_remembered_is_recalled_and_what_an_older_version_wrote_too(tmp_path: Path) -> None:
    file = tmp_path / "people.json"
    memory = Remembered({"ada": Seat("t-0-w0:1")}, ("grace",), {"ada": 20_000, "grace": 20_001}, {"id-w0": "abc"})
    remember(file, memory)
    assert recall(file) == memory
    file.write_text('{"seats": {"ada": "t-0-w0"}, "revoked": []}')
    assert recall(file) == Remembered({"ada": Seat("t-0-w0")})
    for wrong in ('{"seats": {"ada": "t-0-w0"}, "revoked": [], "uids": {"ada": "x"}}', '{"seats": [], "revoked": []}'):
        file.write_text(wrong)
        with pytest.raises(StateError):
            recall(file)


# -------------------------------------------------------------------------------------------------------- bad machines


def test_a_bad_node_is_not_made_anew_while_somebody_sits_there() -> None:
    spec = Spec(FleetName("x"), nodes=(NodePool(NodeName("t"), "v2-8"),))
    sound = node("t-0", NodeState.READY)
    for who, doomed in ((None, True), ("ada", False)):
        bad = HostView(host(), probe={"chips": chips(who, None, None), "runs": [], "suspect": None})
        mending = mend(spec, Snapshot(nodes=(sound,), hosts=(bad,)), {}, (), 0.0)
        assert bool(mending.actions) is doomed
        assert any("ada works or sits there" in text for _, text in mending.notes) is not doomed
