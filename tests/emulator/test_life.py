"""The life of hosts and of the daemon: what dies with what, and what comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tpufleet.emulator import launch
from tpufleet.errors import StateError

from .rig import PARENT, Rig, Shell, is_alive, until

# Leaves its session, its parent and its pipes, as a daemon does, and says its pid in a file.
DAEMON = (
    "setsid python3 -c 'import os, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    'open("pid.new", "w").write(str(os.getpid())); os.rename("pid.new", "pid")\n'
    "time.sleep(1000)' </dev/null >/dev/null 2>&1"
)


def daemonize(shell: Shell, prefix: str = "") -> int:
    """The pid of a daemon on the host."""
    assert shell.ssh(prefix + DAEMON).returncode == 0
    return int(until(lambda: shell.ssh("cat pid").stdout, "the daemon says its pid"))


@pytest.mark.parametrize("prefix", ["", "env -i PATH=$PATH "])
def test_deleting_a_node_kills_a_process_that_left_its_session(shared: Rig, name: str, prefix: str) -> None:
    shell = Shell(shared.config(shared.create(name)))
    pid = daemonize(shell, prefix)
    assert is_alive(pid)
    shared.delete(name)
    assert not is_alive(pid)
    assert not shared.root(f"{name}-w0").parent.exists()


def test_deleting_one_node_leaves_the_processes_of_another(shared: Rig, name: str) -> None:
    shared.create(name)
    survivor = Shell(shared.config(shared.create(f"{name}-b")))
    pid = daemonize(survivor)
    shared.delete(name)
    assert is_alive(pid)


def test_read_only_directories_do_not_survive_a_delete(shared: Rig, name: str, tmp_path: Path) -> None:
    shell = Shell(shared.config(shared.create(name)))
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    shell.output(f"mkdir -p a/b/c && touch a/b/c/f && ln -s {outside} a/link && chmod 0500 a/b/c a && chmod 0000 a/b")
    shared.delete(name)
    assert outside.stat().st_mode & 0o777 == 0o750
    until(lambda: not list(shared.root("x").parent.parent.glob(".gone-*")), "nothing is left over")


def test_a_reboot_kills_everything_and_changes_the_boot_id(shared: Rig, name: str) -> None:
    shell = Shell(shared.config(shared.create(name)))
    pid = daemonize(shell)
    boot_id = 'cat "$TPUFLEET_HOST_ROOT/proc/sys/kernel/random/boot_id"'
    before = shell.output(f'touch "$TMPDIR/t" "$TPUFLEET_HOST_ROOT/run/r" kept; {boot_id}')
    assert shared.http("POST", f"/emulator/faults/reboot/{name}-w0")[0] == 200
    assert not is_alive(pid)
    assert shell.output(boot_id) != before
    assert shell.output('ls "$TMPDIR" "$TPUFLEET_HOST_ROOT/run" kept | grep -v :$ | xargs') == "kept"


def test_a_host_that_is_down_refuses_until_it_is_up(shared: Rig, name: str) -> None:
    shell = Shell(shared.config(shared.create(name)))
    with subprocess.Popen(
        ["ssh", "-F", shell.config, "w0", "echo in; sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ssh:
        assert ssh.stdout and ssh.stdout.readline() == b"in\n"
        assert shared.http("POST", f"/emulator/faults/down/{name}-w0")[0] == 200
        assert ssh.wait(20) == 255
    assert b"Connection refused" in shell.ssh("true").stderr
    assert shared.http("POST", f"/emulator/faults/up/{name}-w0")[0] == 200
    assert shell.ssh("true").returncode == 0
    assert shared.http("POST", "/emulator/faults/down/nobody-w0")[0] == 404


def test_a_preempted_nodes_processes_are_dead(shared: Rig, name: str) -> None:
    shell = Shell(shared.config(shared.create(name)))
    pid = daemonize(shell)
    assert shared.http("POST", f"/emulator/faults/preempt/{name}")[0] == 200
    assert not is_alive(pid)
    assert shell.ssh("true").returncode == 255


def test_the_nodes_come_back_after_a_clean_stop(rig: Rig) -> None:
    node = rig.create("back")
    shell = Shell(rig.config(node))
    pid = daemonize(shell)
    assert rig.stop()
    assert not is_alive(pid)
    assert launch.running(rig.emulator) is None
    rig.start()
    again = rig.await_state(node.name, "READY")
    assert (again.id, again.network_endpoints) == (node.id, node.network_endpoints)
    assert Shell(shell.config).output("cat pid") == str(pid)


def test_the_nodes_come_back_after_the_daemon_was_killed_and_no_process_is_left(rig: Rig) -> None:
    node = rig.create("back")
    shell = Shell(rig.config(node))
    pid = daemonize(shell)
    first = rig.running.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: launch.running(rig.emulator) is None, "the daemon is gone")
    rig.start()
    assert rig.running.pid != first
    assert not is_alive(pid)
    rig.await_state(node.name, "READY")
    assert Shell(rig.config(node)).output("cat pid") == str(pid)


def test_a_second_daemon_says_that_the_directory_is_taken(rig: Rig) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tpufleet.emulator", "--dir", rig.emulator], capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 8
    assert done.stderr.decode() == f"emulator: another emulator is using {rig.emulator}\n"


def test_starting_twice_gives_the_same_daemon_and_stopping_twice_is_no_error(rig: Rig) -> None:
    assert launch.start(rig.emulator) == rig.running == launch.running(rig.emulator)
    assert launch.stop(rig.emulator)
    assert not launch.stop(rig.emulator)
    assert not (rig.emulator / "emulator.json").exists()


def test_an_emulator_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "cloud.json").write_text("{")
    with pytest.raises(StateError, match=r"can't read .*cloud.json"):
        launch.start(tmp_path)
    assert launch.running(tmp_path) is None


def test_the_api_can_end_the_daemon(rig: Rig) -> None:
    rig.create("ends")
    assert rig.http("POST", "/emulator/stop")[0] == 200
    until(lambda: not is_alive(rig.running.pid), "the daemon ends")


def test_state_is_for_its_owner_only(rig: Rig) -> None:
    rig.create("private")
    modes = {path.name: path.stat().st_mode & 0o777 for path in rig.emulator.glob("*.json")}
    assert modes == {"emulator.json": 0o600, "cloud.json": 0o600}
    assert rig.emulator.stat().st_mode & 0o777 == 0o700
    assert PARENT in (rig.emulator / "cloud.json").read_text()
