"""Hosts with accounts, processes and mounts of their own; they need Linux and root."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Project
from tpufleet.emulator import launch, namespace

from .rig import PARENT, RUNTIME, Rig, Shell, is_alive, until

REASON = namespace.why_not(Path("/tmp"))
real = pytest.mark.skipif(REASON is not None, reason=str(REASON))
MACHINES_OWN = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hosts", "/etc/pam.d/su", "/etc/ssh/sshd_config")
ADD = "sudo -n useradd --create-home --shell /bin/bash {0} && sudo -n install -d -m 700 -o {0} ~{0}/.ssh"
GIVE_KEY = "sudo -n tee ~{0}/.ssh/authorized_keys >/dev/null && sudo -n chown {0} ~{0}/.ssh/authorized_keys"
JOB = """\
import getpass, os, pathlib, time
print(getpass.getuser(), os.environ["TPUFLEET_ATTEMPT"], flush=True)
pathlib.Path(os.environ["TPUFLEET_RUN_DIR"], "started").touch()
if os.environ["TPUFLEET_ATTEMPT"] == "1":
    time.sleep(600)
"""
names = (f"person{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("machines"), {"hosts": "namespace"})
    yield rig
    rig.stop()


@pytest.fixture(scope="module")
def shell(rig: Rig) -> Shell:
    """OpenSSH's clients on a v2-8 that the tests share and leave up."""
    return Shell(rig.config(rig.create("m")))


@pytest.fixture
def person(rig: Rig, shell: Shell) -> str:
    """An account without privileges that the operator has made, with the operator's key."""
    name = next(names)
    shell.output(ADD.format(name))
    assert shell.ssh(GIVE_KEY.format(name), stdin=rig.key.with_suffix(".pub").read_bytes()).returncode == 0
    return name


def as_user(shell: Shell, user: str, command: str) -> subprocess.CompletedProcess[bytes]:
    return shell.ssh(command, options=["-l", user])


def of_hosts(directory: Path) -> set[int]:
    """The machine's processes that see mounts of hosts in `directory`; what starts a host is one of them."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f" {directory}/" in (entry / "mountinfo").read_text():
                found.add(int(entry.name))
    return found


def machine() -> dict[str, str]:
    """What of the machine no host may touch."""
    files = {file: Path(file).read_text() for file in MACHINES_OWN if Path(file).exists()}
    return files | {"mounts": Path("/proc/mounts").read_text(), "name": os.uname().nodename}


@real
def test_a_host_has_processes_directories_and_a_name_of_its_own(rig: Rig, shell: Shell) -> None:
    assert shell.output("cat /proc/1/comm; hostname").split() == ["sshd", "m-w0"]
    assert str(rig.running.pid) not in shell.output("ps -e -o pid=").split()
    assert shell.ssh(f"ls -d {rig.directory}").returncode == 2  # below the machine's /tmp
    told = shell.output("pwd; echo /dev/accel*; echo ${TPUFLEET_HOST_ROOT-unset}").split()
    assert told == ["/home/tpufleet", *(f"/dev/accel{chip}" for chip in range(4)), "unset"]
    boot_id = shell.output("cat /proc/sys/kernel/random/boot_id")
    assert boot_id != Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ask = 'curl -sf -H "Metadata-Flavor: Google" http://$GCE_METADATA_HOST/computeMetadata/v1/instance/name'
    assert shell.output(ask) == "m-w0"


@real
def test_the_operator_has_sudo_and_what_root_writes_stays_on_the_host(shell: Shell) -> None:
    assert shell.output("sudo -n id -u; sudo -n -u nobody id -un").split() == ["0", "nobody"]
    before = machine()
    shell.output("sudo -n sh -c 'echo x > /etc/passwd.mine; echo x > /usr/local/bin/mine; echo x > /root/mine'")
    assert shell.output("cat /etc/passwd.mine /usr/local/bin/mine; sudo -n cat /root/mine").split() == ["x"] * 3
    assert not [file for file in ("/etc/passwd.mine", "/usr/local/bin/mine", "/root/mine") if Path(file).exists()]
    refused = shell.ssh("sudo -n touch /mnt/mine")
    assert (refused.returncode, b"Read-only file system" in refused.stderr) == (1, True), refused
    assert machine() == before


@real
def test_accounts_by_useradd_log_in_and_are_closed_to_each_other(shell: Shell, person: str) -> None:
    other = next(names)
    shell.output(ADD.format(other) + f" && sudo -n chmod 750 ~{other}")
    assert as_user(shell, person, "id -un; id -Gn").stdout.decode().split() == [person, person]
    for forbidden in (
        "sudo -n true",
        "su -c true",
        f"ls ~{other}",
        "touch /usr/local/bin/chips",
        "cat /etc/shadow",
        "cat /proc/1/environ",
        "kill -9 1",
        "mount -t tmpfs none /mnt",
    ):
        assert as_user(shell, person, forbidden).returncode != 0, forbidden
    assert as_user(shell, other, "true").returncode == 255


@real
def test_what_an_account_runs_ends_with_the_boot_and_its_files_stay(rig: Rig, shell: Shell, person: str) -> None:
    as_user(shell, person, "touch kept /tmp/lost; setsid sleep 600 </dev/null >/dev/null 2>&1 &")
    before = shell.output("cat /proc/sys/kernel/random/boot_id; pgrep -x sleep").split()
    running = of_hosts(rig.emulator / "hosts/m-w0")
    assert len(running) >= 3  # what started it, sshd, the sleeper
    started = time.monotonic()
    assert rig.http("POST", "/emulator/faults/reboot/m-w0")[0] == 200
    assert time.monotonic() - started < 2  # 0.2 s on an idle machine
    assert not [pid for pid in running if is_alive(pid)]
    assert shell.ssh("pgrep -x sleep").stdout == b""
    assert shell.output("cat /proc/sys/kernel/random/boot_id") not in before
    assert as_user(shell, person, "ls; ls /tmp").stdout.decode().split() == ["kept"]


@real
def test_a_full_disk_is_full_for_every_account_and_for_what_runs_already(rig: Rig, shell: Shell, person: str) -> None:
    later = "mkfifo go said; (cat go; echo x > late; echo $? > said) </dev/null >/dev/null 2>&1 &"
    as_user(shell, person, later)
    assert rig.http("POST", "/emulator/faults/disk-full/m-w0")[0] == 200
    for user in (person, "tpufleet"):
        done = as_user(shell, user, "echo x > new")
        assert (done.returncode, b"File too large" in done.stderr) == (1, True), (user, done)
    assert as_user(shell, person, "echo > go; cat said").stdout == b"1\n"
    assert rig.http("DELETE", "/emulator/faults/disk-full/m-w0")[0] == 200
    assert as_user(shell, person, "echo x > new; cat new").stdout == b"x\n"


@real
def test_faults_of_the_way_and_of_the_host_key_are_those_of_process_hosts(rig: Rig) -> None:
    node = rig.create("f")
    shell = Shell(rig.config(node))
    assert rig.http("POST", "/emulator/faults/partition/f-w0")[0] == 200
    assert shell.ssh("true", options=["-o", "ConnectTimeout=1"]).returncode == 255
    assert rig.http("DELETE", "/emulator/faults/partition/f-w0")[0] == 200
    shell.output("true")
    assert rig.http("POST", "/emulator/faults/change-host-key/f-w0")[0] == 200
    assert b"HOST IDENTIFICATION HAS CHANGED" in shell.ssh("true").stderr
    assert rig.http("POST", "/emulator/faults/reboot/f-w0")[0] == 200
    shell = Shell(rig.config(rig.await_state(node.name, "READY")))
    shell.output("sleep 600 </dev/null >/dev/null 2>&1 &")
    assert rig.http("POST", "/emulator/faults/change-ip/f-w0")[0] == 200
    assert shell.ssh("true", options=["-o", "ConnectTimeout=5"]).returncode == 255
    shell = Shell(rig.config(rig.await_state(node.name, "READY")))
    assert shell.output("pgrep -x sleep")
    assert rig.http("POST", "/emulator/faults/preempt/f")[0] == 200
    assert shell.ssh("true", options=["-o", "ConnectTimeout=5"]).returncode == 255
    rig.delete("f")


@real
def test_who_leaves_the_metadata_loses_key_and_sudo_and_who_is_called_like_a_group_never_has_an_account(
    rig: Rig, shell: Shell
) -> None:
    public = rig.key.with_suffix(".pub").read_text().strip()

    def allow(*users: str) -> None:
        lines = "\n".join(f"{user}:{public}" for user in ("tpufleet", *users))
        node = {"metadata": {"ssh-keys": lines}}
        assert rig.http("PATCH", f"/v2/{PARENT}/nodes/m?updateMask=metadata", node)[0] == 200

    allow("operator", "guest")
    until(lambda: as_user(shell, "guest", "sudo -n true").returncode == 0, "the guest is root")
    assert shell.ssh("getent group operator").returncode == 0
    assert shell.ssh("getent passwd operator").returncode == 2
    allow()
    until(lambda: as_user(shell, "guest", "true").returncode == 255, "the guest is refused")
    until(lambda: "guest" not in shell.output("getent group google-sudoers"), "the guest may not use sudo")
    allow("guest")
    until(lambda: as_user(shell, "guest", "sudo -n true").returncode == 0, "the guest is root again")
    allow()
    assert shell.output("sudo -n id -u") == "0"


@real
def test_nothing_is_left_on_the_machine_when_the_daemon_is_killed(tmp_path: Path) -> None:
    before = machine()
    rig = Rig(tmp_path, {"hosts": "namespace"})
    shell = Shell(rig.config(rig.create("k")))
    shell.output(ADD.format("ada") + "; setsid sleep 600 </dev/null >/dev/null 2>&1 &")
    until(lambda: shell.ssh("pgrep -x sleep").stdout, "the sleeper")
    hosts = of_hosts(rig.emulator / "hosts")
    assert len(hosts) >= 3  # what started it, sshd, the sleeper
    os.kill(rig.running.pid, signal.SIGKILL)
    until(lambda: not [pid for pid in hosts if is_alive(pid)], "the host's processes have ended")
    assert machine() == before
    rig.start()
    try:
        shell = Shell(rig.config(rig.await_state(f"{PARENT}/nodes/k", "READY")))
        assert shell.output("getent passwd ada | cut -d: -f1; pgrep -x sleep || echo none").split() == ["ada", "none"]
    finally:
        rig.stop()
    assert machine() == before
    assert not of_hosts(rig.emulator / "hosts")


@real
def test_directories_of_path_are_first_and_read_only_wherever_they_are(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "train").write_text("#!/bin/sh\necho trained\n")
    (programs / "train").chmod(0o755)
    rig = Rig(tmp_path, {"hosts": "namespace", "path": [programs]})
    try:
        shell = Shell(rig.config(rig.create("p")))
        assert shell.output("train; bash -lc train").split() == ["trained"] * 2
        assert shell.ssh(f"sudo -n touch {programs}/mine").returncode == 1
        assert shell.output(f"ls {tmp_path}") == "programs"
    finally:
        rig.stop()


@real
def test_a_host_that_does_not_come_up_says_why_and_the_node_is_gone(rig: Rig) -> None:
    sshd = rig.emulator / "hosts/b-w0/layers/usr/sbin/sshd"
    sshd.parent.mkdir(parents=True)
    sshd.write_text("#!/bin/sh\necho no luck with this one >&2\nexit 3\n")
    sshd.chmod(0o755)
    node = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME}
    _, operation = rig.http("POST", f"/v2/{PARENT}/nodes?nodeId=b", node)

    def error() -> str:
        return str(rig.http("GET", f"/v2/{operation['name']}")[1].get("error", ""))

    assert "b-w0 does not come up: no luck with this one" in until(error, "the operation has failed")
    assert "b" not in rig.names()
    assert not of_hosts(rig.emulator / "hosts/b-w0")


@real
def test_the_kind_of_hosts_stays_while_the_daemon_runs(rig: Rig) -> None:
    with pytest.raises(launch.StateError, match="runs with namespace hosts, and process hosts are wanted"):
        launch.start(rig.emulator, hosts="process")


@real
def test_the_whole_story_on_a_machine_of_its_own(tmp_path: Path) -> None:
    before = machine()
    project = Project.make(tmp_path / "project")
    file = project.directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("create_seconds: 0", "create_seconds: 0, hosts: namespace"))
    (project.directory / "code/job.py").write_text(JOB)
    project.commit("It waits to be broken off")
    try:
        assert "4 chips ready" in project.run("create").stdout
        assert "(tpufleet)" in project.run("exec", "--", "id").stdout
        project.run("run", "one")
        started = project.directory / ".tpufleet/emulator/hosts/tpu-0-w0/root/var/lib/tpufleet/runs/one/started"
        until(started.exists, "the run has begun")
        project.run("emulator", "fault", "reboot", "tpu-0-w0")
        project.run("run", "one", "--follow")
        project.run("collect")
        (run,) = project.json("runs")["runs"]
        assert (run["state"], run["chips"]) == ("done", ["tpu-0-w0:0"])
        assert [attempt["reason"] for attempt in run["attempts"]] == ["host rebooted", None]
        assert (project.directory / "artifacts/sherlock/runs/one/log.txt").read_text() == "tpufleet 1\ntpufleet 2\n"
        assert project.run("ssh", "tpu-0-w0", "--", "pwd").stdout == "/home/tpufleet\n"
        assert "0 nodes" in project.run("delete", "--yes").stdout
    finally:
        project.stop()
    assert machine() == before


@real
def test_where_namespace_hosts_cannot_be_had_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert namespace.why_not(Path("/tmp")) == "namespace hosts need Linux and root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "isn't below /usr" in str(namespace.why_not(Path("/usr/share/emulator")))
    monkeypatch.setattr(namespace, "ROOTS_PATH", "/nowhere")
    assert "sshd" in str(namespace.why_not(Path("/tmp")))
