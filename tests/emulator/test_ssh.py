"""OpenSSH's own clients on emulated hosts."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .rig import PARENT, USER, Rig, Shell, is_alive, until

EVERY_BYTE = bytes(range(256)) * 4096


def test_a_command_keeps_its_exit_code_and_both_outputs_apart(shell: Shell) -> None:
    done = shell.ssh("echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


def test_standard_input_and_output_carry_every_byte_and_their_end(shell: Shell) -> None:
    done = shell.ssh("cat", stdin=EVERY_BYTE)
    assert (done.returncode, done.stdout == EVERY_BYTE) == (0, True)
    assert shell.ssh("cat >&2", stdin=EVERY_BYTE).stderr == EVERY_BYTE


def test_bulk_is_held_back_by_a_slow_reader_and_not_stored_in_the_daemon(rig: Rig) -> None:
    shell = Shell(rig.config(rig.create("bulk")))
    shell.output("mkfifo go")
    before = _peak_mb(rig.running.pid)
    down = ["ssh", "-F", shell.config, "w0", "head -c 50000000 /dev/zero"]
    up = ["ssh", "-F", shell.config, "w0", "cat go; wc -c"]
    with (
        subprocess.Popen(down, stdout=subprocess.PIPE) as slow,
        subprocess.Popen(up, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as eager,
        ThreadPoolExecutor() as pool,
    ):
        assert slow.stdout and eager.stdin
        assert slow.stdout.read(1) == b"\0"
        counted = pool.submit(eager.communicate, bytes(50_000_000))
        shell.output("echo > go")
        assert int(counted.result()[0]) == 50_000_000
        assert len(slow.stdout.read()) == 49_999_999
    assert _peak_mb(rig.running.pid) - before < 40


def _peak_mb(pid: int) -> int:
    """The most memory the process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def test_a_session_has_the_hosts_environment_and_nothing_of_the_daemons(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_NAME", "C")
    rig.stop()
    monkeypatch.setenv("SECRET_OF_THE_STARTER", "1")
    rig.start()
    shell = Shell(rig.config(rig.create("clean")))
    done = shell.ssh("env", options=["-o", "SendEnv=LC_NAME SECRET_OF_THE_STARTER"])
    env = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    root = rig.root("clean-w0")
    assert env["HOME"] == env["PWD"] == f"{root}/home/{USER}"
    assert env["USER"] == env["LOGNAME"] == USER
    assert env["TPUFLEET_HOST_ROOT"] == str(root)
    assert env["TMPDIR"] == f"{root}/tmp"
    assert env["PATH"].split(":")[0] == f"{root}/usr/local/bin"
    assert env["SSH_CONNECTION"].split()[2].startswith("127.77.")
    assert env["LC_NAME"] == "C"
    assert "SECRET_OF_THE_STARTER" not in env


def test_directories_of_the_settings_come_first_on_the_path_also_in_login_shells(rig: Rig, tmp_path: Path) -> None:
    tool = tmp_path / "tools" / "mytool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    shell = Shell(rig.config(rig.create("tools")))
    assert rig.http("PUT", "/emulator/settings", {"path": [str(tool.parent)]})[0] == 200
    assert shell.output("mytool") == "found"
    assert shell.ssh(stdin=b"mytool; sudo -n id -un; exit 4\n").stdout.decode().split() == ["found", USER]
    assert shell.ssh(stdin=b"exit 4\n").returncode == 4


def test_the_host_looks_like_a_tpu_vm(shared: Rig, shell: Shell, name: str) -> None:
    assert shell.output('cd "$TPUFLEET_HOST_ROOT" && ls dev') == "accel0\naccel1\naccel2\naccel3"
    assert shell.output('stat -c "%a" ~ ~/.ssh "$TMPDIR"').split() == ["750", "700", "1777"]
    assert shell.output("hostname; whoami").split() == [f"{name}-w0", USER]
    boot_id = shared.root(f"{name}-w0") / "proc/sys/kernel/random/boot_id"
    assert len(boot_id.read_text().strip()) == 36


def test_vfio_types_have_vfio_devices(shared: Rig, name: str) -> None:
    shared.create(name, "v6e-4", runtime="v2-alpha-tpuv6e")
    devices = sorted(device.name for device in (shared.root(f"{name}-w0") / "dev/vfio").iterdir())
    assert devices == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("sudo -n true", ""),
        ("sudo -nE -u root FOO=bar -- sh -c 'echo $FOO'", "bar"),
        ("sudo -n -H A=1 -- env | grep -c ^A=1", "1"),
        ("sudo --non-interactive printf %s -x", "-x"),
    ],
)
def test_the_sudo_stand_in_runs_the_command_as_it_is(shell: Shell, command: str, says: str) -> None:
    assert shell.output(command) == says


def test_the_metadata_server_answers_as_googles(shell: Shell) -> None:
    get = (
        "python3 -c 'import os, sys, urllib.request as r; "
        'q = r.Request("http://" + os.environ["GCE_METADATA_HOST"] + "/computeMetadata/v1/" + sys.argv[1], '
        'headers=dict(h.split("=") for h in sys.argv[2:])); print(r.urlopen(q).read().decode())\' '
    )
    flavor = " Metadata-Flavor=Google"
    assert shell.output(get + "instance/attributes/accelerator-type" + flavor) == "v2-8"
    assert shell.output(get + "instance/attributes/agent-worker-number" + flavor) == "0"
    assert "WORKER_ID: '0'" in shell.output(get + "instance/attributes/tpu-env" + flavor)
    assert shell.output(get + "project/project-id" + flavor) == "p"
    assert b"403" in shell.ssh(get + "instance/id").stderr
    assert b"404" in shell.ssh(get + "instance/nothing" + flavor).stderr


def test_each_worker_is_a_host_of_its_own(shared: Rig, name: str) -> None:
    node = shared.create(name, "v3-32", parent="projects/p/locations/europe-west4-a")
    shell = Shell(shared.config(node))
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda worker: shell.output("hostname", worker), range(4)))
    assert names == [f"{name}-w{worker}" for worker in range(4)]


def test_twenty_connections_at_once_work(shell: Shell) -> None:
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda n: shell.output(f"echo {n}"), range(20))) == [str(n) for n in range(20)]


def test_only_the_users_own_key_opens_the_door(shared: Rig, name: str, tmp_path: Path) -> None:
    shell = Shell(shared.config(shared.create(name)))
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    stranger = tmp_path / "config"
    stranger.write_text(shell.config.read_text().replace(str(shared.key), str(other)))
    assert b"Permission denied (publickey)" in Shell(stranger).ssh("true").stderr
    assert b"Permission denied (publickey)" in shell.ssh("true", options=["-l", "somebody"]).stderr


def test_a_metadata_update_changes_who_may_log_in(shared: Rig, shell: Shell, name: str) -> None:
    node = {"metadata": {"ssh-keys": shared.ssh_keys("ada")}}
    assert shared.http("PATCH", f"/v2/{PARENT}/nodes/{name}?updateMask=metadata", node)[0] == 200
    assert shell.ssh("true").returncode == 255
    assert shell.ssh("id -un", options=["-l", "ada"]).stdout == b"ada\n"


def test_a_wrong_host_key_is_refused_by_the_client(shell: Shell, shared: Rig, name: str) -> None:
    known = shell.config.with_suffix(".known")
    known.write_text(f"{name}-w0 {shared.key.with_suffix('.pub').read_text()}")
    done = shell.ssh("true")
    assert done.returncode == 255
    assert b"REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_forwarding_is_refused(shell: Shell) -> None:
    done = shell.ssh(options=["-W", "127.0.0.1:22"])
    assert done.returncode != 0
    assert b"open failed" in done.stderr


def test_a_terminal_has_the_clients_size_and_hangs_up_with_the_line(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    subprocess.run(["stty", "rows", "33", "cols", "77"], stdin=theirs, check=True)
    command = 'trap "echo hung > ~/hung; exit" HUP; tty; stty size; echo "pid=$$="; while :; do sleep 0.05; done'
    with subprocess.Popen(
        ["ssh", "-tt", "-F", shell.config, "w0", command], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ssh:
        assert ssh.stdout
        lines = [ssh.stdout.readline().decode().strip() for _ in range(3)]
        assert lines[0].startswith("/dev/pts/")
        assert lines[1] == "33 77"
        pid = int(lines[2].split("=")[1])
        ssh.kill()
    until(lambda: not is_alive(pid), "the shell on the terminal ends")
    assert shell.output("cat ~/hung") == "hung"
    os.close(ours)
    os.close(theirs)


def test_an_interactive_shell_takes_control_characters(shell: Shell) -> None:
    line = ["ssh", "-tt", "-F", shell.config, "w0"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ssh:
        assert ssh.stdin and ssh.stdout
        ssh.stdin.write(b"echo rea''dy; sleep 1000\n")
        ssh.stdin.flush()
        until(lambda: b"ready" in ssh.stdout.readline(), "the shell has read the line")
        ssh.communicate(b"\x03exit 5\n")
    assert ssh.returncode == 5


def test_a_terminal_session_ends_though_a_child_holds_the_terminal(shell: Shell) -> None:
    done = shell.ssh("nohup sleep 1000 >/dev/null & (trap '' HUP; sleep 1000) & echo done", options=["-tt"])
    assert done.returncode == 0
    assert b"done" in done.stdout


def test_a_command_outlives_the_line_and_a_killed_one_says_by_what(shell: Shell) -> None:
    with subprocess.Popen(["ssh", "-F", shell.config, "w0", "echo $$; exec sleep 1000"], stdout=subprocess.PIPE) as ssh:
        assert ssh.stdout
        pid = int(ssh.stdout.readline())
        ssh.kill()
    assert shell.output(f"kill -0 {pid} && echo lives; kill -9 {pid}") == "lives"
    assert shell.ssh("kill -9 $$").returncode == 255  # OpenSSH's answer to exit-signal


def test_a_background_process_outlives_its_session(shell: Shell) -> None:
    pid = int(shell.output("setsid nohup sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"))
    assert is_alive(pid)


def test_scp_sftp_and_the_old_scp_bring_files_there_and_back(shell: Shell, tmp_path: Path) -> None:
    source, back = tmp_path / "a file", tmp_path / "back"
    source.write_bytes(EVERY_BYTE)
    for options in ((), ("-O",)):
        assert shell.run("scp", *options, "-p", str(source), "w0:there").returncode == 0
        assert shell.run("scp", *options, "w0:there", str(back)).returncode == 0
        assert back.read_bytes() == EVERY_BYTE
        assert shell.output("rm there && echo gone") == "gone"
    batch = f'mkdir d\nput "{source}" d/x\nrename d/x d/y\nls -l d\nget d/y "{back}"\npwd\n'
    back.unlink()
    done = shell.run("sftp", "-b", "-", "w0", stdin=batch.encode())
    assert done.returncode == 0, done.stderr
    assert f"/home/{USER}" in done.stdout.decode()
    assert back.read_bytes() == EVERY_BYTE
    absolute = shell.output("echo $HOME") + "/d/y"
    assert shell.run("scp", "-r", f"w0:{absolute}", str(back)).returncode == 0


def test_git_works_over_it(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F {shell.config}")
    shell.output("git init -q --bare code.git")
    work = tmp_path / "work"
    home = shell.output("echo $HOME")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]

    def git(*arguments: str) -> None:
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    git("init", "-q", "-b", "main", str(work))
    (work / "f").write_bytes(EVERY_BYTE)
    git("-C", str(work), "add", "f")
    git("-C", str(work), "commit", "-q", "-m", "one")
    git("-C", str(work), "push", "-q", f"ssh://w0{home}/code.git", "main")
    git("clone", "-q", "-b", "main", "w0:code.git", str(tmp_path / "clone"))
    assert (tmp_path / "clone" / "f").read_bytes() == EVERY_BYTE


def test_an_unknown_subsystem_is_refused(new_shell: Callable[..., Shell]) -> None:
    assert new_shell().ssh("nonsense", options=["-s"]).returncode != 0
