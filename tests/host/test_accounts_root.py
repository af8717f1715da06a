"""The verb `accounts` on machines of their own, as root: real uids, OpenSSH's sshd, people who try things."""

from __future__ import annotations

import datetime
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.rig import Rig
from tests.project import until
from tpufleet.emulator import namespace

from .machines import BASE, Machine
from .people import request

REASON = namespace.why_not(Path("/tmp"))
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
MACHINES_OWN = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow")


def later(seconds: float) -> str:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    before = {file: Path(file).read_text() for file in MACHINES_OWN if Path(file).exists()}
    rig = Rig(tmp_path_factory.mktemp("accounts"), {"hosts": "namespace"})
    yield rig
    rig.stop()
    assert before == {file: Path(file).read_text() for file in before}


@pytest.fixture(scope="module")
def machine(rig: Rig) -> Machine:
    return Machine(rig, "m")


def alive(machine: Machine, name: str) -> list[str]:
    """What a person runs, as the operator sees it."""
    return machine.shell.ssh(f"ps -o comm= -U {name}").stdout.decode().split()


def test_who_is_in_the_list_logs_in_and_is_nobody_special(machine: Machine) -> None:
    everybody = [machine.person("ada", 0, share=True), machine.person("bob", 1)]
    machine.apply(*everybody)
    machine.shell.output("sudo -n gpasswd --add ada google-sudoers")
    assert machine.apply(*everybody)["ada"] == "changed"
    assert set(machine.apply(*everybody).values()) == {"kept"}
    assert machine.said_to("ada", "id; pwd").split() == [
        "uid=20000(ada)", "gid=20000(ada)", "groups=20000(ada)", "/home/ada",
    ]  # fmt: skip
    assert machine.said_to("bob", "echo $TPU_VISIBLE_CHIPS; bash -lc 'echo $TPU_VISIBLE_CHIPS'").split() == ["1", "1"]
    assert machine.said_to("ada", "stat -c '%a %U %G' ~ ~/.ssh ~/.ssh/authorized_keys ~/.bashrc").split("\n") == [
        "750 ada ada", "700 ada ada", "600 ada ada", "644 ada ada",
    ]  # fmt: skip
    assert machine.said_to("ada", "which chips on-chip").split() == ["/usr/local/bin/chips", "/usr/local/bin/on-chip"]


def test_what_is_shared_is_the_operators_to_read_and_nobody_elses(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0, share=True), machine.person("bob", 1))
    machine.said_to("ada", "mkdir -p ~/runs/ada-1 && echo 1 > ~/runs/ada-1/metrics.jsonl")
    machine.said_to("bob", "mkdir -p ~/runs/bob-1 && echo 1 > ~/runs/bob-1/metrics.jsonl")
    assert machine.shell.output(f"cat {BASE}/people/ada/ada-1/metrics.jsonl") == "1"
    assert machine.shell.ssh("ls /home/bob/runs").returncode != 0
    assert machine.run_as("bob", f"ls {BASE}/people/ada").returncode != 0
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    assert machine.shell.ssh(f"ls {BASE}/people/ada").returncode != 0
    assert machine.said_to("ada", "cat ~/runs/ada-1/metrics.jsonl") == "1"


FORBIDDEN = (
    "sudo -n true",
    "su -c true",
    "ls /home/bob",
    "cat /home/bob/.ssh/authorized_keys",
    "cat /proc/{sleeper}/environ",
    "ls /proc/{sleeper}/fd",
    "kill -9 {sleeper}",
    f"ls {BASE}/runs",
    f"cat {BASE}/runs/gpt/log.txt",
    f"ls {BASE}/control",
    f"touch {BASE}/mine",
    f"touch {BASE}/lib/mine",
    f"echo x >> {BASE}/people.json",
    f"mv {BASE}/people.json {BASE}/x",
    ": > /dev/accel1",
    "cat /dev/accel1",
    "flock --nonblock /run/tpufleet/leases/chip-1.lock true",
    "flock --nonblock --shared /run/tpufleet/leases/chip-1.lock true",
    "rm /run/tpufleet/leases/chip-1.lock",
    "mv /run/tpufleet/leases/chip-1.lock /run/tpufleet/leases/chip-9.lock",
    "chmod 666 /dev/accel1",
    "echo x >> /etc/tpufleet/shell.sh",
    "echo x >> /usr/local/bin/on-chip",
    "rm -f /usr/local/bin/chips",
    "echo x >> /etc/motd.d/tpufleet",
    "cat /etc/shadow",
    "crontab -u bob /dev/null",
)


def test_a_person_reaches_nothing_of_anybody_elses(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    machine.shell.output(f"mkdir -p -m 700 {BASE}/runs/gpt {BASE}/control; echo x > {BASE}/runs/gpt/log.txt")
    machine.shell.output(f"chmod 755 {BASE}/runs {BASE}/runs/gpt")
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    machine.said_to("bob", "TOKEN=secret setsid sleep 600 </dev/null >/dev/null 2>&1 &")
    sleeper = until(lambda: machine.shell.ssh("pgrep -x sleep -U bob").stdout.decode().strip(), "bob's process")
    tried = "\n".join(
        f"({line}) </dev/null >/dev/null 2>&1 && echo {shlex.quote(line)}"
        for line in (line.format(sleeper=sleeper) for line in FORBIDDEN)
    )
    assert machine.said_to("ada", f"{tried}\ntrue") == ""
    leases = "/run/tpufleet/leases"
    machine.said_to("ada", f"flock -n {leases}/chip-0.lock cat /dev/accel0 && flock -n {leases}/chip-2.lock true")
    machine.shell.output("flock --nonblock /run/tpufleet/leases/chip-1.lock true")  # the operator's group


def test_no_file_that_others_execute_is_a_persons_to_write(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    looked = f"find /usr/local/bin /usr/local/sbin /usr/bin /usr/sbin /etc /root /home {BASE} /run -xdev -writable"
    found = machine.run_as("ada", f"{looked} ! -type l -print 2>/dev/null").stdout.split()
    own = ("/home/ada", f"{BASE}/people/ada", "/run/tpufleet/leases/", "/run/user/20000")
    assert [path for path in found if not path.startswith(own)] == []


def test_an_account_that_is_not_ours_stays_as_it_is(machine: Machine) -> None:
    machine.shell.output("sudo -n useradd --create-home --uid 20003 dan && sudo -n useradd --uid 30000 eve")
    before = machine.shell.output("sudo -n grep -e dan -e eve /etc/passwd /etc/shadow /etc/group")
    people = [machine.person("ada", 0), machine.person("eve"), machine.person("cyd", uid=20_003)]
    people.append(machine.person("tpufleet", uid=20_100, key=machine.person("spare")["key"]))
    entries = machine.told(*people)
    assert {name: entry["why"] for name, entry in entries.items() if entry["state"] == "refused"} == {
        "eve": "there is an account eve on this host that tpufleet did not make",
        "cyd": "uid 20003 is dan's on this host",
        "tpufleet": "there is an account tpufleet on this host that tpufleet did not make",
    }
    assert machine.shell.output("sudo -n grep -e dan -e eve /etc/passwd /etc/shadow /etc/group") == before
    assert machine.run_as("eve", "true").returncode == 255


# Each of them makes others for ever, so whoever ends them one by one comes too late for some.
BOMB = """
import os, resource, time
resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.003)
"""


def test_revoking_ends_everything_of_the_person_within_seconds(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    machine.said_to("ada", "setsid sleep 600 </dev/null >/dev/null 2>&1 &")
    machine.said_to("ada", f"setsid python3 -c {shlex.quote(BOMB)} </dev/null >/dev/null 2>&1 &")
    putting_back = "while :; do cp /tmp/ada.keys ~/.ssh/authorized_keys; done 2>/dev/null"
    machine.said_to("ada", "cp ~/.ssh/authorized_keys /tmp/ada.keys")
    with machine.session_of("ada", putting_back) as hers, machine.session_of("bob", "sleep 600") as his:
        begun = time.monotonic()
        answer = machine.ask("accounts", {"fleet": "sherlock", "host": "tpu-0-w0", "hosts": [],
                                          "people": [machine.person("bob", 1)], "visitor": None})  # fmt: skip
        assert hers.wait(5) == 255
        assert time.monotonic() - begun < 5
        states = {entry["name"]: entry["state"] for entry in answer["accounts"]}
        assert (answer["sessions_ended"] >= 1, states["ada"]) == (True, "revoked")
        assert his.poll() is None
        assert alive(machine, "ada") == []
        his.kill()
    assert machine.run_as("ada", "true").returncode == 255
    assert machine.shell.output("stat -c '%U %a' /dev/accel0 /run/tpufleet/leases/chip-0.lock").split() == [
        "root", "666", "root", "666",
    ]  # fmt: skip
    # Whoever has put a key back is refused all the same: the account itself is closed.
    machine.shell.output("sudo -n install -o ada -g ada -m 600 /tmp/ada.keys ~ada/.ssh/authorized_keys")
    assert machine.run_as("ada", "true").returncode == 255
    assert machine.apply(machine.person("ada", 0), machine.person("bob", 1))["ada"] == "changed"
    assert machine.said_to("ada", "id -u") == "20000"


def test_the_hosts_clock_ends_a_live_session(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0, expires=later(2.5)), machine.person("bob", 1))
    with machine.session_of("ada", "sleep 600") as hers:
        assert hers.wait(15) == 255
    until(lambda: machine.written()["ada"]["state"] == "expired", "it is written down")
    assert machine.run_as("ada", "true").returncode == 255
    assert machine.shell.output("stat -c %U /dev/accel0") == "root"
    assert machine.said_to("bob", "id -u") == "20001"


def test_sshd_itself_refuses_a_key_whose_time_is_over(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0, expires=later(3600)), machine.person("bob", 1))
    assert machine.said_to("ada", "id -u") == "20000"
    line = "sed -i 's/expiry-time=\"[0-9]*/expiry-time=\"20200101000000/' ~/.ssh/authorized_keys"
    machine.said_to("ada", line)
    assert machine.run_as("ada", "true").returncode == 255
    assert machine.apply(machine.person("ada", 0), machine.person("bob", 1))["ada"] == "changed"
    assert machine.said_to("ada", "id -u") == "20000"


def test_a_visitors_key_enters_every_account_until_it_is_taken_away(machine: Machine) -> None:
    everybody = [machine.person("ada", 0), machine.person("bob", 1)]
    visitor = machine.person("visitor")["key"]
    machine.apply(*everybody, visitor={"key": visitor, "until": later(600)})
    own, machine.keys["ada"] = machine.keys["ada"], machine.keys["visitor"]
    try:
        assert machine.said_to("ada", "id -u") == "20000"
        machine.apply(machine.person("bob", 1), machine.person("ada", 0, key=everybody[0]["key"]))
        assert machine.run_as("ada", "true").returncode == 255
    finally:
        machine.keys["ada"] = own


HOSTILE = {
    "directories lead elsewhere": (
        "mv ~/.ssh ~/gone; ln -s /root/.ssh ~/.ssh; rm -rf ~/runs; ln -s /root ~/runs; rm ~/.bashrc; mkdir ~/.bashrc"
    ),
    "files lead elsewhere": (
        "ln -sf /etc/shadow ~/.ssh/authorized_keys; ln -s /etc/passwd ~/.ssh/.authorized_keys.tpufleet; "
        "ln -sf /home/bob/.ssh/authorized_keys ~/.ssh/config; ln -sf /etc/shadow ~/.bashrc"
    ),
    "pipes and closed doors": (
        "rm ~/.ssh/authorized_keys; mkfifo ~/.ssh/authorized_keys; chmod 0 ~/.ssh/config ~/.profile; chmod 500 ~/.ssh ~"
    ),
}


@pytest.mark.parametrize("trick", HOSTILE)
def test_a_persons_tricks_lead_root_nowhere(machine: Machine, trick: str) -> None:
    machine.apply(machine.person("bob", 1), machine.person("ada", 0, share=True))
    machine.shell.output("sudo -n sh -c 'mkdir -p -m 700 /root/.ssh; echo root > /root/.ssh/authorized_keys'")
    looked = (
        "sudo -n sh -c 'sha256sum /etc/passwd /etc/shadow /root/.ssh/authorized_keys /home/bob/.ssh/authorized_keys; "
        'stat -c "%a %U" /root /root/.ssh /etc/shadow /home/bob/.ssh\''
    )
    before = machine.shell.output(looked)
    machine.said_to("ada", HOSTILE[trick])
    entries = machine.told(machine.person("bob", 1), machine.person("ada", 0, share=True))
    assert machine.shell.output(looked) == before
    assert (entries["bob"]["state"], entries["ada"]["state"] in ("kept", "changed")) == ("kept", True), entries
    assert machine.said_to("ada", "id -u; stat -c %U ~/.ssh/authorized_keys").split() == ["20000", "ada"]
    machine.said_to("ada", "rm -rf ~/.bashrc ~/*.before-* ~/.*.before-* ~/gone")


def test_who_stops_what_is_done_in_their_home_is_revoked_all_the_same(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    stopper = (
        "import os, signal\nme = os.getpid()\nwhile True:\n"
        "  for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    try:\n"
        "      if int(pid) != me and b'accounts' in open(f'/proc/{pid}/cmdline', 'rb').read():\n"
        "        os.kill(int(pid), signal.SIGSTOP); open('/tmp/stopped', 'a').write(pid + chr(10))\n"
        "    except OSError: pass\n"
    )
    with machine.session_of("ada", f"exec python3 -c {shlex.quote(stopper)}") as hers:
        begun = time.monotonic()
        assert machine.apply(machine.person("bob", 1))["ada"] == "revoked"
        assert time.monotonic() - begun < 5
        assert hers.wait(5) == 255
    assert machine.run_as("ada", "true").returncode == 255
    assert alive(machine, "ada") == []


STOPPING_ALL = (
    "import os, signal\nos.setsid()\nwhile True:\n  try: os.kill(-1, signal.SIGSTOP)\n  except OSError: pass\n"
)


def test_who_stops_all_that_is_theirs_for_ever_is_revoked_all_the_same(machine: Machine) -> None:
    """Of several, one always runs: who stops everybody doesn't stop themselves."""
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    line = f"nice python3 -c {shlex.quote(STOPPING_ALL)} </dev/null >/dev/null 2>&1 &"
    with machine.session_of("ada", f"(sleep 0.2; {line * 3}) </dev/null >/dev/null 2>&1 &") as hers:
        until(lambda: alive(machine, "ada").count("python3") == 3, "all three are there")
        begun = time.monotonic()
        assert machine.apply(machine.person("bob", 1))["ada"] == "revoked"
        assert time.monotonic() - begun < 8
        hers.kill()
    assert alive(machine, "ada") == []
    assert set(machine.apply(machine.person("bob", 1)).values()) <= {"kept", "revoked"}


def test_only_who_had_something_running_is_counted(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    machine.said_to("ada", "true")
    until(lambda: alive(machine, "ada") == [], "the session is over")
    asked = request()
    with machine.session_of("bob", "sleep 600") as his:
        assert machine.ask("accounts", asked)["sessions_ended"] == 1
        his.kill()
    assert machine.ask("accounts", asked)["sessions_ended"] == 0


def test_nothing_that_is_begun_in_the_name_of_who_is_gone_lives_on(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0, share=True))
    machine.apply()
    sleeper = "sudo -n setpriv --reuid=20000 --regid=20000 --clear-groups setsid sleep 600 </dev/null >/dev/null 2>&1 &"
    asked = {"fleet": "sherlock", "person": "ada"}
    for again in (machine.apply, lambda: machine.start("belongings", asked).communicate(timeout=60)):
        machine.shell.output(sleeper)
        until(lambda: alive(machine, "ada") == ["sleep"], "it runs")
        again()
        assert alive(machine, "ada") == []


def test_who_opened_a_lease_before_it_was_a_seats_cant_lock_it(machine: Machine) -> None:
    machine.apply(machine.person("ada"), machine.person("bob"))
    waiting = "until [ -e /tmp/changed ]; do sleep 0.05; done"
    kept = f"exec 9<>/run/tpufleet/leases/chip-3.lock; touch /tmp/opened; {waiting}; flock 9; touch /tmp/locked"
    with machine.session_of("ada", f"{kept}; sleep 600") as hers:
        until(lambda: machine.shell.ssh("test -e /tmp/opened").returncode == 0, "the lease is open")
        machine.apply(machine.person("ada"), machine.person("bob", 3))
        machine.shell.output("touch /tmp/changed")
        until(lambda: machine.shell.ssh("test -e /tmp/locked").returncode == 0, "the old one is locked")
        machine.said_to("bob", "flock --nonblock /run/tpufleet/leases/chip-3.lock true")
        hers.kill()
    machine.apply(machine.person("ada"))
    assert machine.shell.output("stat -c '%U %a' /run/tpufleet/leases/chip-3.lock") == "root 666"


def test_seats_change_hands(machine: Machine) -> None:
    machine.apply(machine.person("ada", 0), machine.person("bob", 1))
    machine.apply(machine.person("ada", 1), machine.person("bob"))
    told = machine.shell.output("stat -c '%U %G %a' /dev/accel0 /dev/accel1 /run/tpufleet/leases/chip-[01].lock")
    assert told.splitlines() == ["root root 666", "ada tpufleet 660"] * 2
    assert machine.said_to("ada", "echo $TPU_VISIBLE_CHIPS; cat /dev/accel1") == "1"
    assert machine.run_as("bob", "cat /dev/accel1").returncode == 1


def test_after_a_boot_seats_and_ends_are_kept(rig: Rig) -> None:
    machine = Machine(rig, "b")
    machine.apply(machine.person("ada", 0, expires=later(3600)), machine.person("bob", 1, expires=later(3601)))
    text = machine.shell.output(f"cat {BASE}/people.json").replace(machine.written()["bob"]["expires"], later(-1))
    assert machine.shell.ssh(f"sudo -n tee {BASE}/people.json", stdin=text.encode()).returncode == 0
    machine.reboot()
    until(
        lambda: machine.shell.ssh("stat -c %U /dev/accel0 /run/tpufleet/leases/chip-0.lock").stdout == b"ada\nada\n",
        "the seat is ada's again",
    )
    until(lambda: machine.shell.ssh("pgrep -u root -f ' expire '").stdout, "somebody waits for the end")
    assert machine.run_as("bob", "true").returncode == 255
    assert machine.said_to("ada", "id -u") == "20000"
    rig.delete("b")


@pytest.mark.faults
def test_who_stops_what_is_done_in_their_home_holds_nobody_else_up_for_long(rig: Rig) -> None:
    machine = Machine(rig, "s")
    machine.apply(machine.person("ada", 0))
    stopper = "while :; do pkill -STOP -u ada -f ' accounts'; done"
    with machine.session_of("ada", stopper) as hers:
        begun = time.monotonic()
        entries = machine.told(machine.person("ada", 0, key=machine.person("eve")["key"]), machine.person("bob", 1))
        assert time.monotonic() - begun < 20
        assert entries["bob"]["state"] == "made"
        assert entries["ada"]["why"] in (None, "the work in the home took too long")
        hers.kill()
    assert machine.said_to("bob", "id -u") == "20001"
    rig.delete("s")
