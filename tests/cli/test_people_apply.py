"""Accounts equal the list, whatever happened to hosts, nodes, commands and what home remembers of it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project, missing, until
from tests.unit.hostile_people import ed25519
from tpufleet.emulator import namespace

REASON = namespace.why_not(Path("/tmp"))
needs_root = pytest.mark.skipif(REASON is not None, reason=str(REASON))
real = pytest.mark.parametrize("kind", [pytest.param("namespace", marks=needs_root)])
both = pytest.mark.parametrize("kind", ["process", pytest.param("namespace", marks=needs_root)])
# the same on both, and hosts with real accounts are slower: so they have their turn with the faults
each = pytest.mark.parametrize("kind", ["process", pytest.param("namespace", marks=[needs_root, pytest.mark.faults])])
ZONE = "us-central1-b"
STATE = 'cat "${TPUFLEET_HOST_ROOT-}"/var/lib/tpufleet/people.json'
NOBODY = '{"people": []}'


class Evening(Project):
    """A project whose hosts have people."""

    def on(self, *hosts: str) -> dict[str, dict[str, dict[str, Any]]]:
        """Who is known on the hosts (default: all), host -> name -> as root wrote it down there."""
        results = self.json("exec", "--on", ",".join(hosts) or "*", "--", f"{STATE} || echo '{NOBODY}'")["results"]
        return {
            result["host"]: {person["name"]: person for person in json.loads(result["stdout"])["people"]}
            for result in results
        }

    def here(self, *hosts: str) -> dict[str, dict[str, tuple[int, list[int]]]]:
        """The uid and the seat of those who may log in, host -> name."""
        return {
            host: {name: (item["uid"], item["seat"]) for name, item in found.items() if item["state"] == "here"}
            for host, found in self.on(*hosts).items()
        }

    def add(self, *names: str, seat: str | None = None) -> None:
        """Put people in the list as by hand, which is quicker than a command for each."""
        where = f", seat: '{seat}'" if seat else ""
        with (self.directory / "people.yaml").open("a") as file:
            for name in names:
                file.write(f"- {{name: {name}, key: {ed25519(sum(name.encode()))}{where}}}\n")

    def applied(self, *words: str, ok: bool = True) -> dict[str, dict[str, str]]:
        """What `people apply` says of each person: host -> state."""
        done = self.json("people", "apply", *words, ok=ok)
        return {
            person["name"]: {host: account["state"] for host, account in person["hosts"].items()}
            for person in done["people"]
        }

    @property
    def memory(self) -> Path:
        return self.directory / ".tpufleet" / "people.json"


@pytest.fixture
def evening(tmp_path: Path, kind: str) -> Iterator[Evening]:
    """Two nodes with four chips each, not created yet."""
    evening = made(tmp_path / "project", kind, 2)
    yield evening
    evening.stop()


def made(directory: Path, kind: str, count: int) -> Evening:
    project = Project.make(directory, count=count, jobs="  one: {command: [python3, job.py], grid: {seed: [0, 1, 2]}}")
    file = directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("create_seconds: 0", f"create_seconds: 0, hosts: {kind}"))
    return Evening(project.directory)


def split(words: str) -> dict[str, str]:
    return dict.fromkeys(("tpu-0-w0", "tpu-1-w0"), words)


@both
def test_create_and_apply_make_the_accounts_of_all_hosts_equal_the_list(evening: Evening) -> None:
    evening.add("ada", "grace")
    created = evening.run("create")
    assert created.stderr.count("accounts: 2 made") == 2
    assert evening.here() == {
        "tpu-0-w0": {"ada": (20_000, [0]), "grace": (20_001, [])},
        "tpu-1-w0": {"ada": (20_000, []), "grace": (20_001, [0])},
    }
    again = evening.json("create")
    assert again["changed"] is False

    note = evening.run("people", "add", "linus", ed25519(7)).stderr
    assert "the hosts don't know yet: tpufleet people apply" in note
    foreseen = evening.applied("--dry-run")
    assert foreseen == {"ada": split("kept"), "grace": split("kept"), "linus": split("made")}
    assert evening.applied() == foreseen
    assert not evening.json("people", "apply")["changed"]

    evening.run("people", "swap", "ada", "grace", "--apply")
    here = evening.here()
    assert (here["tpu-0-w0"]["grace"], here["tpu-1-w0"]["ada"]) == ((20_001, [0]), (20_000, [0]))
    done = evening.run("people", "revoke", "grace")
    assert "no host has the account open" in done.stdout
    assert {found["grace"]["state"] for found in evening.on().values()} == {"revoked"}
    assert evening.json("people", "list")["revoked"] == []
    evening.run("people", "revoke", "grace")  # the same again
    evening.run("people", "add", "grace", ed25519(9), "--apply")
    assert evening.here()["tpu-1-w0"]["grace"][0] == 20_001


@each
def test_a_fleet_without_people_asks_its_hosts_for_no_accounts(evening: Evening) -> None:
    evening.run("create")
    evening.run("watch", "--once")
    assert evening.run("exec", "--", f"! {STATE}").exit_code == 0
    assert not evening.memory.exists()


@real
def test_revoke_ends_a_session_that_is_open_and_refuses_the_next(evening: Evening, tmp_path: Path) -> None:
    if why := missing("ssh"):
        pytest.skip(why)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    evening.run("people", "add", "ada", f"{key}.pub")
    evening.add("grace")
    evening.run("create")
    line = ssh_line(evening, key)
    with subprocess.Popen([*line, "echo in; sleep 600"], stdout=subprocess.PIPE) as session:
        assert session.stdout
        assert session.stdout.readline() == b"in\n"
        begun = time.monotonic()
        evening.run("people", "revoke", "ada")
        assert session.wait(timeout=10) != 0
        assert time.monotonic() - begun < 5
    assert subprocess.run([*line, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 255
    assert [set(found) for found in evening.here().values()] == [{"grace"}, {"grace"}]


def ssh_line(evening: Evening, key: Path) -> list[str]:
    """OpenSSH's client as ada's on tpu-0-w0, by the config that the operator has, with ada's key."""
    file = evening.json("ssh-config")["file"]
    options = ["-F", str(file), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-l", "ada", "-i", str(key)]
    return ["ssh", *options, "tpu-0-w0"]


@pytest.mark.faults
@each
def test_hosts_that_can_not_be_reached_are_named_and_told_later(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("create")
    evening.run("emulator", "fault", "partition", "tpu-1-w0")
    done = evening.run("people", "revoke", "ada", ok=False)
    assert done.exit_code == 6
    assert "1 of 2 hosts not told: tpu-1-w0" in done.stderr
    assert evening.json("people", "list")["revoked"] == ["ada"]
    assert evening.json("people", "list")["people"][0]["seat"] == "tpu-1-w0:0"  # it is silent, not gone
    evening.run("emulator", "fault", "partition", "tpu-1-w0", "--end")
    assert {host: set(found) for host, found in evening.here().items()} == {
        "tpu-0-w0": {"grace"},
        "tpu-1-w0": {"ada", "grace"},
    }
    evening.run("watch", "--once")
    assert set(evening.here("tpu-1-w0")["tpu-1-w0"]) == {"grace"}
    assert evening.json("people", "list")["revoked"] == []


@each
def test_a_node_that_is_made_anew_has_all_accounts_again_with_the_same_uids(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("create")
    before = evening.here()
    evening.run("emulator", "fault", "preempt", "tpu-1")
    watched = evening.run("watch", "--once")
    assert "tpu-1-w0: a new machine; new cards: tpufleet people card" in watched.stderr
    assert evening.here() == before


@each
def test_whose_host_is_gone_gets_another_seat_and_a_new_card(evening: Evening) -> None:
    evening.add("ada", "grace", "linus")
    evening.add("barbara", seat="tpu-1-w0:3")
    evening.run("create")
    evening.run("emulator", "fault", "preempt", "tpu-1")
    done = evening.run("people", "apply")
    assert "linus sits at tpu-0-w0:2 now\nnew card: tpufleet people card linus\n" in done.stdout
    assert {name: seat for name, (_, seat) in evening.here("tpu-0-w0")["tpu-0-w0"].items()} == {
        "ada": [0],
        "grace": [1],
        "linus": [2],
        "barbara": [],
    }
    evening.run("create")
    assert {name: seat for name, (_, seat) in evening.here("tpu-1-w0")["tpu-1-w0"].items() if seat} == {"barbara": [3]}


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["process"])
def test_nobody_is_looked_for_on_a_host_that_can_not_be_reached(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("create")
    evening.run("emulator", "fault", "partition", "tpu-1-w0")
    checked = json.loads(evening.run("--json", "people", "check", ok=False).stdout.splitlines()[0])
    assert [(one["name"], one["faults"]) for one in checked["people"]] == [("ada", [])]
    assert checked["without"] == {"grace": "tpu-1-w0, where they sit, can't be reached"}


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["process"])
def test_whoever_is_moved_or_waits_is_said_and_a_check_says_what_helps(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("create")
    added = evening.run("people", "add", "linus", ed25519(7), "--seat", "tpu-0-w0:0", "--apply").stdout
    assert "ada sits at tpu-0-w0:1 now\nnew card: tpufleet people card ada\n" in added
    assert "linus sits at tpu-0-w0:0; card: tpufleet people card linus\n" in added

    evening.add("barbara", seat="tpu-1-w0:3")
    evening.run("emulator", "fault", "preempt", "tpu-1")
    done = evening.run("people", "apply")
    assert "barbara waits: tpu-1-w0 is gone" in done.stderr
    assert "grace sits at tpu-0-w0:2 now" in done.stdout
    assert evening.json("people", "apply")["waiting"] == {"barbara": "tpu-1-w0"}
    gone = evening.run("people", "check", "barbara", ok=False)
    assert (gone.exit_code, "tpu-1-w0, where they sit, is not ready" in gone.stderr) == (6, True)
    assert "→ tpufleet create\n" in gone.stderr
    file = evening.directory / "people.yaml"
    file.write_text(file.read_text().replace("{name: barbara,", "{name: barbara, expires: 2020-01-01,"))
    assert "barbara: no seat: their time is over" in evening.run("people", "check", "barbara").stderr

    fleet = evening.directory / "tpufleet.yaml"
    fleet.write_text(fleet.read_text().replace("[python3, job.py]", "[no-such-python, job.py]"))
    checked = json.loads(evening.run("--json", "people", "check", "ada", ok=False).stdout.splitlines()[0])
    assert checked["people"][0]["faults"] == ["no-such-python, which the card's training begins with, is not there"]


@pytest.mark.faults
@both
def test_a_command_that_was_killed_between_list_and_hosts_is_mended_by_the_same_again(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("create")
    evening.run("emulator", "fault", "partition", "tpu-1-w0")
    process = evening.popen("people", "revoke", "ada")
    until(lambda: "revoked" in evening.memory.read_text() and "ada" not in people(evening), "ada is out of the list")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    evening.run("emulator", "fault", "partition", "tpu-1-w0", "--end")
    assert evening.json("people", "list")["revoked"] == ["ada"]
    evening.run("people", "revoke", "ada")
    assert [set(found) for found in evening.here().values()] == [{"grace"}, {"grace"}]


def people(evening: Evening) -> str:
    return (evening.directory / "people.yaml").read_text()


@each
def test_uids_that_home_has_forgotten_are_learned_from_the_hosts(evening: Evening) -> None:
    evening.add("ada", "grace", "linus")
    evening.run("create")
    evening.run("people", "revoke", "ada")
    evening.memory.unlink()
    evening.add("barbara")
    assert evening.applied()["grace"] == split("kept")
    assert {name: uid for name, (uid, _) in evening.here("tpu-0-w0")["tpu-0-w0"].items()} == {
        "grace": 20_001,
        "linus": 20_002,
        "barbara": 20_003,  # not ada's
    }


@each
def test_runs_are_never_given_a_seat_and_say_whose_it_is(evening: Evening, tmp_path: Path) -> None:
    evening.add("ada", seat="tpu-0-w0")
    evening.add("grace", seat="tpu-1-w0:0")
    evening.add("linus", seat="tpu-1-w0:1")
    evening.run("create")
    gate = tmp_path / "gate"
    evening.run("run", "one", "--env", f"GATE={gate}")

    def told() -> dict[str, Any] | None:
        runs = {run["id"]: run for run in evening.json("runs")["runs"]}
        return runs if sorted(run["state"] for run in runs.values()) == ["queued", "running", "running"] else None

    runs = until(told, "two run on what is left, one waits")
    on = sorted(chip for run in runs.values() for chip in run["chips"])
    assert on == ["tpu-1-w0:2", "tpu-1-w0:3"]
    (waits,) = [run["waits"] for run in runs.values() if run["state"] == "queued"]
    assert "grace and linus" in waits
    chips = evening.run("status").stdout
    assert "tpu-0-w0:0  seat" in chips
    gate.touch()


@each
def test_whose_time_is_over_makes_room_for_who_stands(evening: Evening) -> None:
    evening.add("ada", seat="tpu-0-w0")
    evening.add("grace", seat="tpu-1-w0")
    evening.add("linus")
    evening.run("create")
    assert evening.here("tpu-0-w0")["tpu-0-w0"]["linus"] == (20_002, [])
    file = evening.directory / "people.yaml"
    file.write_text(file.read_text().replace("{name: ada,", "{name: ada, expires: 2020-01-01,"))
    evening.run("watch", "--once")
    there = evening.on("tpu-0-w0")["tpu-0-w0"]
    assert (there["ada"]["state"], there["linus"]["seat"]) == ("expired", [0])


@pytest.mark.faults
@each
def test_while_create_waits_for_a_node_people_work_on_those_that_are_there(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("emulator", "start")
    evening.run("emulator", "fault", "stockout", "--zone", ZONE, "--chips", "4")
    with evening.popen("create", "--timeout", "5m") as creating:
        (there,) = until(lambda: evening.json("status")["nodes"], "one node is there")
        host = f"{there['name']}-w0"
        until(
            lambda: evening.memory.exists() and set(evening.here(host)[host]) == {"ada", "grace"}, "they have accounts"
        )
        assert sorted(seat for _, seat in evening.here(host)[host].values()) == [[0], [1]]
        evening.run("emulator", "fault", "stockout", "--zone", ZONE, "--end")
        _, said = creating.communicate(timeout=120)
    assert creating.returncode == 0, said
    assert [set(found) for found in evening.here().values()] == [{"ada", "grace"}] * 2


@pytest.mark.faults
@each
def test_a_watch_moves_people_as_soon_as_their_host_is_gone(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("create")
    with evening.popen("watch", "--interval", "1s") as watching:
        evening.run("emulator", "fault", "stockout", "--zone", ZONE, "--chips", "4")
        evening.run("emulator", "fault", "preempt", "tpu-1")
        until(lambda: evening.here("tpu-0-w0")["tpu-0-w0"]["grace"][1] == [1], "grace sits elsewhere")
        evening.run("people", "add", "linus", ed25519(40))  # the watch tells the hosts by itself
        until(lambda: "linus" in evening.here("tpu-0-w0")["tpu-0-w0"], "linus has an account")
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=30)
    assert "grace: sits at tpu-0-w0:1 now; new card: tpufleet people card grace" in said


@each
def test_a_list_that_has_gone_ends_nobodys_evening_by_itself(evening: Evening) -> None:
    evening.add("ada", "grace")
    evening.run("create")
    (evening.directory / "people.yaml").unlink()
    assert "the list is empty, and ada, grace have accounts" in evening.run("watch", "--once").stderr
    assert "the list is empty" in evening.run("create").stderr
    assert [set(found) for found in evening.here().values()] == [{"ada", "grace"}] * 2
    assert evening.applied() == {"ada": split("revoked"), "grace": split("revoked")}


@pytest.mark.faults
@needs_root
def test_twenty_people_on_five_hosts(tmp_path: Path) -> None:
    evening = made(tmp_path / "project", "namespace", 5)
    names = [f"person-{index}" for index in range(20)]
    try:
        evening.run("create")
        text = "".join(f"- {{name: {name}, key: {ed25519(index)}}}\n" for index, name in enumerate(names))
        (evening.directory / "people.yaml").write_text(text)
        begun = time.monotonic()
        applied = evening.applied()
        print(f"{time.monotonic() - begun:.1f} s")
        hosts = [f"tpu-{index}-w0" for index in range(5)]
        assert applied == {name: dict.fromkeys(hosts, "made") for name in names}
        seats = [seat for found in evening.here().values() for _, seat in found.values() if seat]
        assert sorted(seats) == sorted([[0], [1], [2], [3]] * 5)
    finally:
        evening.stop()
