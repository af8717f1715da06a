"""What the desk asks of a real fleet's list and hosts, and for whom it doesn't."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project
from tests.unit.hostile_people import ed25519
from tpufleet.board import fleetdesk
from tpufleet.board.desk import Admitted
from tpufleet.board.fleetdesk import FleetDesk
from tpufleet.model import Person
from tpufleet.names import PersonName
from tpufleet.ops.accounts import Applied
from tpufleet.ops.people import opened
from tpufleet.personkey import parse_person_key

OVER = datetime(2026, 1, 1, tzinfo=UTC)
ADA = Person(PersonName("ada"), parse_person_key(ed25519(1)))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return Project.make(tmp_path / "project").directory / "tpufleet.yaml"


@pytest.fixture
def desk(config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetDesk]:
    """A desk whose hosts say yes to everything."""
    connect: Any = contextlib.nullcontext
    monkeypatch.setattr(fleetdesk, "apply", lambda *_: Applied())
    yield FleetDesk(config, "sherlock", connect)


def test_a_name_that_was_somebodys_is_given_to_who_returns_alone(desk: FleetDesk, config: Path) -> None:
    assert desk.enlist([ADA], []) == {}
    with opened(config, "test") as people:
        people.revoke("ada")
        people.write()
    assert "people add ada KEY" in desk.enlist([ADA], ["grace"])["ada"]
    assert desk.enlist([ADA], ["ada"]) == {}
    assert [person.name for person in desk.listed().persons] == ["ada"]


def test_who_has_no_time_left_or_is_gone_is_no_problem(desk: FleetDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def cards_of(_people: object, _fleet: object, names: list[str]) -> Any:
        asked.extend(names)
        return [], {}

    monkeypatch.setattr(fleetdesk, "cards_of", cards_of)
    grace = Person(PersonName("grace"), parse_person_key(ed25519(2)))
    desk.enlist([replace(ADA, expires=OVER), grace], [])
    assert desk.admit(["ada", "grace", "gone"]) == Admitted()
    assert asked == ["grace"]
