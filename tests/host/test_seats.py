"""A seat's chip is its person's: no queued run gets it, and everybody is told whose it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpufleet.host import leases, people
from tpufleet.host.places import Places

from .harness import Host, wait_until
from .people import apply, furnish, mode, person
from .waiting import WAITS, let_go, wait_for_start


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return furnish(make_host())


def chips(host: Host) -> list[tuple[str, str | None]]:
    return [(chip["state"], chip["seat"]) for chip in host.call("probe")["chips"]]


def test_a_probe_says_whose_seats_the_chips_are(host: Host) -> None:
    apply(host, person("ada", 1), person("bob", 2, 3), person("cyd"))
    apply(host, person("ada", 1), person("bob", 2, 3))
    found = host.call("probe")
    assert found["people"] == [
        {"name": "ada", "uid": 20_000, "seat": [1], "state": "here"},
        {"name": "bob", "uid": 20_001, "seat": [2, 3], "state": "here"},
        {"name": "cyd", "uid": 20_002, "seat": [], "state": "revoked"},
    ]
    assert chips(host) == [("free", None), ("free", "ada"), ("free", "bob"), ("free", "bob")]


def test_no_queued_run_gets_a_seat(host: Host) -> None:
    apply(host, person("ada", 0), person("bob", 2))
    runs = [f"run{number}" for number in range(3)]
    host.enqueue(*(host.spec(run, WAITS, chips=1) for run in runs))
    for run in runs[:2]:
        wait_for_start(host, run)
    assert sorted(host.state(run)["chips"][0] for run in runs[:2]) == ["tpu-0-w0:1", "tpu-0-w0:3"]
    said = wait_until(lambda: host.state(runs[2]).get("why"), "it is said why the third waits")
    assert said == "chip 0: ada's seat; chip 2: bob's seat"
    apply(host, person("ada", 0))
    wait_for_start(host, runs[2])
    assert host.state(runs[2])["chips"] == ["tpu-0-w0:2"]
    for run in runs:
        let_go(host, run)
        host.wait_for(run, "done")


def test_a_run_on_a_chip_that_becomes_a_seat_goes_on_to_its_end_and_is_the_last(host: Host) -> None:
    everybody = [person("ada", 1), person("bob", 2, 3)]
    apply(host, *everybody)
    host.enqueue(host.spec("first", WAITS, chips=1), host.spec("second", WAITS, chips=1))
    wait_for_start(host, "first")
    apply(host, *everybody, person("cyd", 0))
    assert chips(host)[0] == ("run", "cyd")
    let_go(host, "first")
    host.wait_for("first", "done")
    wait_until(lambda: "chip 0: cyd's seat" in (host.state("second").get("why") or ""), "the second waits for a seat")
    assert chips(host)[0] == ("free", "cyd")
    host.call("stop", runs=["second"])
    host.wait_for("second", "stopped")


def test_a_seats_chip_keeps_no_place_free_for_a_large_run(host: Host) -> None:
    """A run of two chips that can't have 0 and 1 doesn't keep chip 0 from a small one."""
    apply(host, person("ada", 1), person("bob", 3))
    host.enqueue(host.spec("large", WAITS, chips=2, priority=1), host.spec("small", WAITS, chips=1))
    wait_for_start(host, "small")
    assert host.state("small")["chips"] == ["tpu-0-w0:0"]
    let_go(host, "small")
    host.wait_for("small", "done")
    host.call("stop", runs=["large"])
    host.wait_for("large", "stopped")


def test_what_runs_write_is_closed_to_others(host: Host) -> None:
    (host.base / "runs").mkdir(mode=0o755)
    apply(host, person("ada"))
    assert mode(host.base / "runs") == 0o700
    (host.base / "runs").chmod(0o755)
    host.enqueue(host.spec("gpt", "pass"))
    host.wait_for("gpt", "done")
    assert mode(host.base / "runs") == 0o700


ODD: list[Any] = [
    None,
    [],
    {},
    {"fleet": "f"},
    {"fleet": "f", "host": "h", "operator": "o", "people": {}},
    {"fleet": "f", "host": "h", "operator": "o", "people": [None, {}, {"name": 1}], "hosts": 3, "devices": []},
    {"fleet": "f", "host": "h", "operator": "o", "people": [{"name": "x", "uid": True, "since": "", "state": "here"}]},
    {"fleet": "f", "host": "h", "operator": "o", "people": [{"name": "x", "uid": 1, "since": "", "state": "new"}]},
]


@pytest.mark.parametrize("odd", ODD)
def test_people_json_of_another_kind_means_nobody(tmp_path: Path, odd: Any) -> None:
    places = Places(tmp_path)
    places.base.mkdir(parents=True)
    places.people.write_text(json.dumps(odd))
    assert people.seats(places) == {}
    places.people.write_bytes(b"\xff\x00")
    assert people.seats(places) == {}
    places.people.unlink()
    places.people.mkdir()
    assert people.seats(places) == {}


def test_making_leases_again_leaves_a_seats_alone(tmp_path: Path) -> None:
    places = Places(tmp_path)
    leases.prepare(places)
    places.lease(0).chmod(0o660)
    places.lease(1).unlink()
    leases.prepare(places)
    assert [mode(places.lease(chip)) for chip in range(3)] == [0o660, 0o666, 0o666]
