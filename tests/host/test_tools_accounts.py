"""The tools among real accounts: on a host with users, processes and mounts of its own, as root has set it up."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.rig import Rig, Shell
from tpufleet.emulator import namespace

from .harness import wait_until
from .tools import TOOLS

REASON = namespace.why_not(Path("/tmp"))
real = pytest.mark.skipif(REASON is not None, reason=str(REASON))
PEOPLE = {"ada": [0], "grace": [1], "linus": []}
UID = {name: 20000 + n for n, name in enumerate(PEOPLE)}

# What the verb `accounts` makes of the list, as far as the tools can tell.
SET_UP = r"""
set -e
mkdir -p /run/tpufleet/leases /var/lib/tpufleet/people
for chip in 0 1 2 3; do
  touch /run/tpufleet/leases/chip-$chip.lock; chmod 666 /run/tpufleet/leases/chip-$chip.lock
done
cat > /var/lib/tpufleet/people.json
chmod 644 /var/lib/tpufleet/people.json
group=$(id -gn tpufleet)
add() {
  useradd --uid $2 --user-group --create-home --shell /bin/bash $1
  chmod 750 /home/$1
  install -d -m 700 -o $1 -g $1 /home/$1/.ssh
  install -m 600 -o $1 -g $1 ~tpufleet/key.pub /home/$1/.ssh/authorized_keys
}
add ada 20000; add grace 20001; add linus 20002
for seat in 0:ada 1:grace; do
  chown ${seat#*:}:$group /dev/accel${seat%:*} /run/tpufleet/leases/chip-${seat%:*}.lock
  chmod 660 /dev/accel${seat%:*} /run/tpufleet/leases/chip-${seat%:*}.lock
done
install -d -m 2750 -o ada -g $group /var/lib/tpufleet/people/ada
ln -s /var/lib/tpufleet/people/ada /home/ada/runs
install -m 755 ~tpufleet/chips.py /usr/local/bin/chips
install -m 755 ~tpufleet/on_chip.py /usr/local/bin/on-chip
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A host with four chips: ada's, grace's and two that are open to all, of which linus may have one."""
    rig = Rig(tmp_path_factory.mktemp("machines"), {"hosts": "namespace"})
    try:
        shell = Shell(rig.config(rig.create("m")))
        for name, file in (("key.pub", rig.key.with_suffix(".pub")), *((f.name, f) for f in TOOLS.glob("*.py"))):
            assert shell.ssh(f"cat > {name}", stdin=file.read_bytes()).returncode == 0
        people = [{"name": name, "uid": UID[name], "seat": seat, "state": "here"} for name, seat in PEOPLE.items()]
        told = {"fleet": "f", "host": "m-w0", "operator": "tpufleet", "people": people, "hosts": [{"name": "m-w0"}]}
        made = shell.ssh(f"sudo -n bash -c {shlex.quote(SET_UP)}", stdin=json.dumps(told).encode())
        assert made.returncode == 0, made.stderr
        yield shell
    finally:
        rig.stop()


def as_person(shell: Shell, name: str, command: str) -> tuple[int, str]:
    """The exit code and all that was said."""
    done = shell.ssh(f"{{ {command}\n}} 2>&1", options=["-l", name])
    return done.returncode, done.stdout.decode()


def chips(shell: Shell, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(as_person(shell, name, "chips --here --json")[1])["chips"]
    return rows


def begin(shell: Shell, name: str, command: str, chip: int) -> None:
    code, said = as_person(shell, name, f"nohup on-chip {command} </dev/null >/dev/null 2>&1 &")
    assert code == 0, said
    wait_until(lambda: chips(shell, "linus")[chip]["state"] == "person", f"{name} is on chip {chip}")


@pytest.fixture(autouse=True)
def nobody(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nobody has anything running after a test."""
    yield
    if REASON is None:
        for name in PEOPLE:
            request.getfixturevalue("shell").ssh(f"sudo -n pkill -KILL -u {name}")


@real
def test_a_seat_is_its_person_s_alone_whatever_the_list_says(shell: Shell) -> None:
    assert as_person(shell, "ada", "on-chip -- sh -c 'echo $TPU_VISIBLE_CHIPS; id -un'") == (0, "0\nada\n")
    assert as_person(shell, "grace", "on-chip -- printenv TPU_VISIBLE_CHIPS") == (0, "1\n")
    assert as_person(shell, "linus", "on-chip -- printenv TPU_VISIBLE_CHIPS") == (0, "2\n")
    code, said = as_person(shell, "linus", "on-chip 0 -- true")
    assert (code, said) == (77, "on-chip: chip 0 is ada's seat; what is free: chips --here\n")
    shell.output("sudo -n mv /var/lib/tpufleet/people.json /var/lib/tpufleet/people.away")
    try:
        code, said = as_person(shell, "linus", "on-chip 0 -- true")
        assert (code, "chip 0 is somebody else's seat" in said) == (77, True)
        assert as_person(shell, "linus", "on-chip -- printenv TPU_VISIBLE_CHIPS") == (0, "2\n")
        shell.output("sudo -n chmod 666 /run/tpufleet/leases/chip-0.lock")  # the device alone is enough
        code, said = as_person(shell, "linus", "on-chip 0 -- true")
        assert (code, "/dev/accel0 is closed to you" in said) == (77, True)
        assert as_person(shell, "linus", "on-chip -- printenv TPU_VISIBLE_CHIPS") == (0, "2\n")
        assert as_person(shell, "linus", "cat /dev/accel0")[0] != 0
    finally:
        shell.output("sudo -n chmod 660 /run/tpufleet/leases/chip-0.lock")
        shell.output("sudo -n mv /var/lib/tpufleet/people.away /var/lib/tpufleet/people.json")


@real
def test_everybody_sees_who_is_on_which_chip_since_when_and_with_what(shell: Shell) -> None:
    begin(shell, "ada", "-- sleep 600", 0)
    begin(shell, "linus", "3 -- sleep 601", 3)
    for onlooker in (*PEOPLE, "tpufleet"):
        rows = chips(shell, onlooker)
        told = [(row["state"], row["seat"], row["who"], row["command"]) for row in rows]
        assert told == [
            ("person", "ada", "ada", "sleep 600"),
            ("seat", "grace", None, None),
            ("free", None, None, None),
            ("person", None, "linus", "sleep 601"),
        ]
        assert all(row["since"] and row["pid"] for row in (rows[0], rows[3]))
    code, said = as_person(shell, "grace", "on-chip 3 -- true")
    assert (code, "chip 3 is busy: linus, sleep 601, pid " in said) == (75, True)


@real
def test_a_note_that_lies_about_who_holds_a_chip_is_not_believed(shell: Shell) -> None:
    begin(shell, "linus", "3 -- sleep 600", 3)
    lie = json.dumps({"person": "grace", "pid": 1, "command": "mine", "since": "2026-01-01T00:00:00Z"})
    assert as_person(shell, "linus", f"echo {shlex.quote(lie)} > /run/tpufleet/leases/chip-3.lock")[0] == 0
    row = chips(shell, "ada")[3]
    assert (row["who"], row["command"]) == ("linus", "sleep 600")
    lie = json.dumps({"run": "gpt"})
    assert as_person(shell, "linus", f"echo {shlex.quote(lie)} > /run/tpufleet/leases/chip-3.lock")[0] == 0
    assert (chips(shell, "ada")[3]["state"], chips(shell, "ada")[3]["who"]) == ("person", "linus")


@real
def test_a_chip_whose_on_chip_was_killed_is_its_command_s_for_all_who_look(shell: Shell) -> None:
    begin(shell, "linus", "3 -- sleep 600", 3)
    assert as_person(shell, "linus", "pkill -KILL -f '[b]in/on-chip 3'")[0] == 0
    for onlooker in PEOPLE:
        row = chips(shell, onlooker)[3]
        assert (row["state"], row["who"], row["command"]) == ("person", "linus", "sleep 600")
    code, said = as_person(shell, "ada", "on-chip 3 -- true")
    assert (code, "chip 3 is busy: linus, sleep 600" in said) == (75, True)
    as_person(shell, "linus", "pkill -KILL -x sleep")
    wait_until(lambda: chips(shell, "ada")[3]["state"] == "free", "the chip is free")


@real
def test_what_is_shared_the_operator_can_read_and_no_other_person(shell: Shell) -> None:
    code, said = as_person(shell, "ada", "umask 077; on-chip -- sh -c 'echo {} > $TPUFLEET_RUN_DIR/metrics.jsonl'")
    assert (code, said) == (0, "")
    files = "/var/lib/tpufleet/people/ada/*/metrics.jsonl"
    assert shell.output(f"cat {files}") == "{}"
    assert (
        json.loads(shell.output("cat $(ls -d /var/lib/tpufleet/people/ada/* | tail -n 1)/run.json"))["person"] == "ada"
    )
    assert as_person(shell, "grace", f"cat {files}; ls /var/lib/tpufleet/people/ada")[0] != 0
    assert as_person(shell, "grace", "on-chip -- true")[0] == 0
    assert as_person(shell, "linus", "ls /home/grace/runs")[0] != 0
    assert as_person(shell, "grace", "stat -c %a runs runs/* | sort -u") == (0, "750\n")


@real
def test_a_login_that_is_cut_gives_the_chip_back(shell: Shell) -> None:
    """A session without a terminal isn't told when its client goes, but one with a terminal is."""
    done = shell.ssh("timeout 1 on-chip 3 -- sleep 600", options=["-l", "linus"])
    assert done.returncode == 124
    assert chips(shell, "ada")[3]["state"] == "free"
