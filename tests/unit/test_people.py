"""The list of people: as YAML, as CSV and in the fleet file; changed without losing a byte of the rest; and seats."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.unit.hostile_people import FILES, TABLES, ed25519
from tpufleet.config.load import load, load_with_people
from tpufleet.config.people import expiry
from tpufleet.config.roster import with_person, with_seats, without_person
from tpufleet.errors import ConfigError
from tpufleet.model import Person
from tpufleet.names import HostName, PersonName, Seat
from tpufleet.people import chips_of_hosts, is_over, seats
from tpufleet.personkey import parse_person_key

FLEET = "fleet: x\nnodes: [{name: t, count: 2, accelerator: v2-8}]\nssh: {user: boss}\n"
YAML = f"""\
# Thursday's group
- name: ada          # sits in front
  key: {ed25519(1)} ada@laptop
  expires: 2026-12-01T22:00+01:00

# came late
- {{name: grace, key: {ed25519(2)}, seat: t-0-w0:2, note: "x: y"}}
- key: '{ed25519(3)}'
  seat: "t-1-w0"
  name: linus
# the end
"""
CSV = f'''\
# Thursday's group
Name;Key;Seat;Expires;Note\r
ada;{ed25519(1)};;2026-12-01T22:00+01:00;\r

grace;{ed25519(2)} me;t-0-w0:2;;"x; ""y"""\r
linus;"{ed25519(3)}";t-1-w0\r
'''
ADA = Person(PersonName("ada"), parse_person_key(ed25519(1)), datetime(2026, 12, 1, 21, tzinfo=UTC))
GRACE = Person(PersonName("grace"), parse_person_key(ed25519(2)), None, Seat("t-0-w0:2"), "x: y")
LINUS = Person(PersonName("linus"), parse_person_key(ed25519(3)), None, Seat("t-1-w0"))
NEW = Person(
    PersonName("new"), parse_person_key(ed25519(9)), datetime(2026, 12, 1, tzinfo=UTC), Seat("t-0-w0:0"), 'a "b", c; #d'
)


def written(directory: Path, text: str, name: str = "people.yaml") -> Path:
    """A fleet file whose people are `text`."""
    (directory / "tpufleet.yaml").write_text(FLEET + f"people: {name}\n")
    (directory / name).write_bytes(text.encode("utf-8", errors="surrogateescape"))
    return directory / "tpufleet.yaml"


def said(error: ConfigError) -> str:
    return f"{error.message} → {error.hint}"


# ------------------------------------------------------------------------------------------------------- reading


def test_a_list_in_yaml(tmp_path: Path) -> None:
    assert load(written(tmp_path, YAML)).people == (ADA, GRACE, LINUS)


def test_a_list_in_csv(tmp_path: Path) -> None:
    ada, grace, linus = load(written(tmp_path, CSV, "people.csv")).people
    assert (ada, linus) == (ADA, LINUS)
    assert (grace.name, grace.key, grace.seat, grace.note) == ("grace", GRACE.key, GRACE.seat, 'x; "y"')


def test_a_list_in_the_fleet_file(tmp_path: Path) -> None:
    inside = "people:\n" + "".join(f"  {line}\n" for line in YAML.splitlines())
    (tmp_path / "tpufleet.yaml").write_text(FLEET + inside)
    assert load(tmp_path / "tpufleet.yaml").people == (ADA, GRACE, LINUS)


def test_a_list_beside_the_fleet_file_needs_no_naming(tmp_path: Path) -> None:
    path = tmp_path / "tpufleet.yaml"
    path.write_text(FLEET)
    assert load(path).people == ()
    (tmp_path / "people.yaml").write_text(YAML)
    assert len(load(path).people) == 3


@pytest.mark.parametrize("text", ["", "\n", "# nobody yet\n", "[]\n"])
def test_nobody_is_a_list_too(tmp_path: Path, text: str) -> None:
    assert load(written(tmp_path, text)).people == ()


@pytest.mark.parametrize("named", ["[7]", "7", "true", "../p", "/etc/passwd", "{a: b}", "~", "there/isnt.csv", "."])
def test_a_list_that_can_not_be_named_so(tmp_path: Path, named: str) -> None:
    (tmp_path / "tpufleet.yaml").write_text(FLEET + f"people: {named}\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "tpufleet.yaml")
    assert str(caught.value.where).startswith(str(tmp_path))
    assert "people" in said(caught.value) or named == "."


@pytest.mark.parametrize("case", [*FILES, *(f"csv: {case}" for case in TABLES)])
def test_a_hostile_list_is_refused_with_its_place(tmp_path: Path, case: str) -> None:
    table = TABLES.get(case.removeprefix("csv: ")) if case.startswith("csv: ") else None
    name = "people.yaml" if table is None else "people.csv"
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, FILES[case] if table is None else table, name))
    assert str(caught.value.where).startswith(str(tmp_path / name))
    assert all(line.isprintable() for line in said(caught.value).split("\n"))
    assert "b3BlbnNzaC1rZXk" not in said(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("people.yaml", f"- name: ada\n  key: {ed25519()}\n- name: root\n  key: {ed25519(2)}\n", "3:9"),
        ("people.yaml", "- name: ada\n  key: ssh-dss AAAA\n", "2:8"),
        ("people.csv", "name,key\nada,ssh-dss AAAA\n", "2:5"),
        ("people.csv", f'note,"key",name\r\n"a, b",{ed25519()},root\r\n', f"2:{8 + len(ed25519()) + 1}"),
        ("people.csv", f'name,key\n# a comment\n\nada,{ed25519()},x"y\n', f"4:{5 + len(ed25519()) + 2}"),
    ],
)
def test_mistakes_have_line_and_column(tmp_path: Path, name: str, text: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text, name))
    assert caught.value.where == f"{tmp_path / name}:{place}"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01", "2026-12-02T00:00:00+00:00"),
        ("2026-12-01T18:00Z", "2026-12-01T18:00:00+00:00"),
        ("2026-12-01 18:00:30-05:00", "2026-12-01T23:00:30+00:00"),
        ("8h", "2026-11-21T18:00:00+00:00"),
        ("90s", "2026-11-21T10:01:30+00:00"),
    ],
)
def test_times_that_are_meant(text: str, moment: str) -> None:
    assert expiry(text, datetime(2026, 11, 21, 10, 0, 0, 5, tzinfo=UTC)).isoformat() == moment


def test_time_is_over_at_its_moment() -> None:
    assert is_over(ADA, datetime(2026, 12, 1, 21, tzinfo=UTC))
    assert not is_over(ADA, datetime(2026, 12, 1, 20, 59, 59, tzinfo=UTC))
    assert not is_over(GRACE, datetime(9999, 1, 1, tzinfo=UTC))


# ------------------------------------------------------------------------------------------------------- changing


@pytest.mark.parametrize(("name", "text"), [("people.yaml", YAML), ("people.csv", CSV)])
def test_adding_appends_and_touches_nothing(tmp_path: Path, name: str, text: str) -> None:
    config = written(tmp_path, text, name)
    _, roster = load_with_people(config)
    new = with_person(roster, NEW)
    assert new.encode().startswith(text.encode())
    assert load(written(tmp_path, new, name)).people == (*roster.persons, NEW)


@pytest.mark.parametrize(("name", "text"), [("people.yaml", YAML), ("people.csv", CSV)])
@pytest.mark.parametrize("gone", ["ada", "grace", "linus"])
def test_revoking_takes_the_persons_lines_and_no_other(tmp_path: Path, name: str, text: str, gone: str) -> None:
    _, roster = load_with_people(written(tmp_path, text, name))
    new = without_person(roster, gone)
    assert [person.name for person in load(written(tmp_path, new, name)).people] == [
        person.name for person in roster.persons if person.name != gone
    ]
    left = new.splitlines(keepends=True)
    assert [line for line in text.splitlines(keepends=True) if line in left] == left
    assert all(line in left for line in text.splitlines(keepends=True) if line.startswith("#"))


@pytest.mark.parametrize(("name", "text"), [("people.yaml", YAML), ("people.csv", CSV)])
@pytest.mark.parametrize(
    "wanted",
    [
        {"ada": Seat("t-0-w0:3")},
        {"grace": Seat("t-0-w0")},
        {"linus": None},
        {"grace": None},
        {"ada": Seat("t-0-w0:2"), "grace": Seat("t-1-w0"), "linus": None},
    ],
)
def test_a_seat_changes_its_line_alone(tmp_path: Path, name: str, text: str, wanted: dict[str, Seat | None]) -> None:
    _, roster = load_with_people(written(tmp_path, text, name))
    new = with_seats(roster, wanted)
    people = load(written(tmp_path, new, name)).people
    assert {person.name: person.seat for person in people} == {
        person.name: wanted.get(person.name, person.seat) for person in roster.persons
    }
    ours, others = [set(lines.splitlines(keepends=True)) for lines in (new, text)]
    assert len(ours ^ others) <= 2 * len(wanted)
    assert all(line in new for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize(
    "text",
    [
        f"[{{name: ada, key: {ed25519()}}}]\n",  # a list in brackets
        f"[{{name: ada,\n  key: {ed25519()}}},\n {{name: grace, key: {ed25519(2)}}}]\n",
        f"name,key\nada,{ed25519()}\n",  # a table without a heading for what is to be written
    ],
)
def test_a_list_written_in_another_way_is_left_alone_and_the_command_says_what_to_write(
    tmp_path: Path, text: str
) -> None:
    name = "people.csv" if text.startswith("name") else "people.yaml"
    _, roster = load_with_people(written(tmp_path, text, name))
    with pytest.raises(ConfigError, match="only you can change") as caught:
        with_person(roster, NEW)
    assert str(NEW.key) in said(caught.value)


def test_a_list_in_the_fleet_file_is_the_persons_own(tmp_path: Path) -> None:
    (tmp_path / "tpufleet.yaml").write_text(FLEET + f"people: [{{name: ada, key: {ed25519()}}}]\n")
    _, roster = load_with_people(tmp_path / "tpufleet.yaml")
    with pytest.raises(ConfigError, match="only you change"):
        without_person(roster, "ada")


@pytest.mark.parametrize("name", ["people.yaml", "people.csv"])
def test_a_list_is_made_by_its_first_person(tmp_path: Path, name: str) -> None:
    (tmp_path / "tpufleet.yaml").write_text(FLEET + f"people: {name}\n")
    with pytest.raises(ConfigError, match="is not there"):
        load(tmp_path / "tpufleet.yaml")
    _, roster = load_with_people(tmp_path / "tpufleet.yaml")
    assert load(written(tmp_path, with_person(roster, NEW), name)).people == (NEW,)


# ---------------------------------------------------------------------------------------------------------- seats


def person(number: int, seat: str | None = None) -> Person:
    name = "p" + "abcdefghjkmnpqrtuvwxyz"[number % 22] + "x" * (number // 22)
    return Person(PersonName(name), parse_person_key(ed25519(number)), None, Seat(seat) if seat else None)


CROWD = tuple(person(number) for number in range(24))


def hosts(count: int, chips: int = 4) -> dict[HostName, int]:
    return {HostName(f"t-{index}-w0"): chips for index in range(count)}


def counts(found: Mapping[str, Seat]) -> list[int]:
    names = [seat.host for seat in found.values()]
    return sorted(names.count(name) for name in set(names))


def test_twenty_people_fill_five_hosts_and_the_twenty_first_stands_and_is_told_why() -> None:
    seating = seats(CROWD[:21], hosts(5), {})
    assert counts(seating.seats) == [4] * 5
    assert len(set(seating.seats.values())) == 20
    assert seating.standing == {CROWD[20].name: "every chip has its person (20 chips on 5 hosts)"}


def test_seven_people_on_five_hosts_are_spread() -> None:
    assert counts(seats(CROWD[:7], hosts(5), {}).seats) == [1, 1, 1, 2, 2]


def test_a_host_that_dies_moves_only_those_who_sat_there() -> None:
    before = seats(CROWD[:12], hosts(5), {}).seats
    dead = HostName("t-2-w0")
    after = seats(CROWD[:12], {name: chips for name, chips in hosts(5).items() if name != dead}, before).seats
    moved = {name for name in before if before[name] != after[name]}
    assert moved == {name for name, seat in before.items() if seat.host == dead}
    assert len(set(after.values())) == 12


SOME = st.lists(st.integers(0, 23), unique=True)


@given(SOME, SOME, st.integers(0, 5), st.integers(1, 5))
def test_nobody_is_left_out_nobody_shares_and_nobody_moves_without_need(
    first: list[int], later: list[int], some: int, chips: int
) -> None:
    before = seats([CROWD[index] for index in first], hosts(some, chips), {}).seats
    there = [CROWD[index] for index in later]
    seating = seats(there, hosts(some, chips), before)
    assert {person.name for person in there} == {*seating.seats} | {*seating.standing}
    assert not {*seating.seats} & {*seating.standing}
    assert len(set(seating.seats.values())) == len(seating.seats) == min(len(there), some * chips)
    assert all(seating.seats[name] == seat for name, seat in before.items() if name in seating.seats)


def test_a_fixed_seat_is_kept_for_its_owner() -> None:
    first = seats(CROWD[:2], hosts(1), {}).seats
    owner = person(5, str(first[CROWD[0].name]))
    seating = seats((CROWD[0], CROWD[1], owner), hosts(1), first)
    assert seating.seats[owner.name] == first[CROWD[0].name]
    assert seating.seats[CROWD[1].name] == first[CROWD[1].name]
    assert seating.seats[CROWD[0].name] not in first.values()


def test_a_whole_host_leaves_nobody_else_room_there() -> None:
    seating = seats((CROWD[0], person(7, "t-0-w0")), hosts(2), {})
    assert seating.seats == {CROWD[0].name: "t-1-w0:0", person(7).name: "t-0-w0"}


@pytest.mark.parametrize(
    ("seat", "why"),
    [("t-9-w0:1", "no host t-9-w0"), ("t-0-w0:4", "t-0-w0 has 4 chips"), ("t-0-w0", "t-0-w0 is somebody else's")],
)
def test_a_fixed_seat_that_can_not_be_had_is_said(seat: str, why: str) -> None:
    seating = seats((person(1, "t-0-w0:1"), person(2, seat)), hosts(1), {})
    assert why in seating.standing[person(2).name]


def test_seats_of_a_fleet_without_hosts() -> None:
    assert seats(CROWD[:1], {}, {}).standing == {CROWD[0].name: "the fleet has no hosts"}


def test_the_hosts_of_a_file_and_their_chips(tmp_path: Path) -> None:
    path = tmp_path / "tpufleet.yaml"
    path.write_text("fleet: x\nnodes: [{name: t, accelerator: v3-32}, {name: u, count: 2, accelerator: v5litepod-8}]\n")
    assert chips_of_hosts(load(path)) == {f"t-0-w{index}": 4 for index in range(4)} | {"u-0-w0": 8, "u-1-w0": 8}


def test_who_had_a_whole_host_and_may_sit_anywhere_gets_one_chip() -> None:
    before = seats((person(1, "t-0-w0"),), hosts(1), {}).seats
    seating = seats((person(1), person(2)), hosts(1), before)
    assert sorted(seating.seats.values()) == ["t-0-w0:0", "t-0-w0:1"]
