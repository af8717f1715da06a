"""What the verb `accounts` makes of homes: the lines that shells and ssh read, runs, clones, and what is in the way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .harness import Host, wait_until
from .people import apply, furnish, home, key_of, keys, mode, person, request, told, written
from .test_code import REPO, commit, git, send

URL = "https://example.invalid/me/work.git"


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return furnish(make_host())


def test_ones_own_lines_stay_below_ours(host: Host) -> None:
    apply(host, person("ada"))
    at = home(host, "ada")
    own = {".bashrc": "alias ll='ls -l'\n", ".profile": "umask 027\n", ".ssh/config": "Host me\n  Port 2222\n"}
    for name, text in own.items():
        (at / name).write_text(text)
    (at / ".ssh/config").chmod(0o664)
    apply(host, person("ada"))
    for name, text in own.items():
        first, rest = (at / name).read_text().split("\n", 1)
        assert ("# tpufleet:" in first, rest) == (True, text), name
    assert mode(at / ".ssh/config") == 0o600


def test_every_shell_is_pinned_to_the_seat_and_to_no_chip_without_one(host: Host) -> None:
    """As sshd starts it: SSH_CLIENT is what Debian's bash tells it by."""
    apply(host, person("ada", 2), person("bob"), person("cyd", 0, 1))
    (host.root / "etc/profile").write_text("")

    def shown(name: str, *shell: str, **more: str) -> str:
        env = {"PATH": os.environ["PATH"], "USER": name, "HOME": str(home(host, name)), "SSH_CLIENT": "10.0.0.1 5 22"}
        env |= {"TPUFLEET_HOST_ROOT": str(host.root), "CLOUD_TPU_TASK_ID": "0"} | more
        line = "echo ${TPU_VISIBLE_CHIPS-none} ${PJRT_DEVICE-none} ${JAX_PLATFORMS-none} ${CLOUD_TPU_TASK_ID-unset}"
        return subprocess.run([*shell, line], env=env, capture_output=True, text=True, check=True, input="").stdout

    shells = [("bash", "-lc"), ("sh", "-lc")]
    if shown("ada", "bash", "-c").startswith("2"):  # a bash that was built with SSH_SOURCE_BASHRC, as Debian's is
        shells.append(("bash", "-c"))
    for shell in shells:
        assert shown("ada", *shell) == "2 TPU none unset\n"
        assert shown("bob", *shell, TPU_VISIBLE_CHIPS="3") == "none CPU cpu unset\n"
        assert shown("cyd", *shell) == "0,1 TPU none unset\n"
        assert shown("ada", *shell, TPUFLEET_RUN_ID="mine", TPU_VISIBLE_CHIPS="3") == "3 none none 0\n"
    apply(host, person("ada", 3), person("bob"))
    assert shown("ada", "bash", "-lc") == "3 TPU none unset\n"


def test_all_chips_of_one_worker_of_many_wait_for_no_other_worker(host: Host) -> None:
    hosts = [{"name": f"tpu-0-w{n}", "address": "10.0.0.9", "port": 22, "key": key_of(str(n))} for n in range(4)]
    apply(host, person("ada", 0, 1, 2, 3), hosts=hosts)
    assert "TPU_SKIP_MDS_QUERY=1" in (host.root / "etc/tpufleet/shell.sh").read_text()
    apply(host, person("ada", 0, 1, 2, 3), hosts=hosts[:1])
    assert "TPU_SKIP_MDS_QUERY=1" not in (host.root / "etc/tpufleet/shell.sh").read_text()


def clear(path: Path) -> Path:
    """Nothing is at `path` any more."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


def hostile(at: Path, elsewhere: Path) -> None:
    """Puts in the way whatever a person can."""
    clear(at / ".ssh").symlink_to(elsewhere)
    clear(at / ".bashrc").mkdir()
    os.mkfifo(clear(at / ".profile"))
    clear(at / "runs").symlink_to(elsewhere)


def hostile_inside(at: Path, elsewhere: Path) -> None:
    os.mkfifo(clear(at / ".ssh/authorized_keys"))
    clear(at / ".ssh/config").symlink_to(elsewhere / "secret")
    clear(at / ".ssh/authorized_keys2").mkdir()
    clear(at / ".ssh/.authorized_keys.tpufleet").symlink_to(elsewhere / "secret")
    clear(at / ".bashrc").symlink_to(elsewhere / "secret")


@pytest.mark.parametrize("spoil", [hostile, hostile_inside])
def test_nothing_is_followed_out_of_a_home(host: Host, spoil: Callable[[Path, Path], None]) -> None:
    elsewhere = host.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("secret")
    (elsewhere / "authorized_keys").write_text("root's")
    apply(host, person("ada"), person("bob"))
    spoil(home(host, "ada"), elsewhere)
    begun = time.monotonic()
    entries = told(host, person("ada"), person("bob"))
    assert time.monotonic() - begun < 8  # no pipe is waited for
    assert (entries["ada"]["state"], entries["bob"]["state"]) == ("changed", "kept")
    assert ".bashrc is no plain file" in entries["ada"]["why"]
    assert keys(host, "ada") == f"{key_of('ada')}\n"
    assert not (home(host, "ada") / ".ssh").is_symlink()
    spoil(home(host, "ada"), elsewhere)
    assert apply(host, person("bob"))["ada"] == "revoked"
    assert keys(host, "ada") is None or not (home(host, "ada") / ".ssh").exists()
    contents = {path.name: path.read_text() for path in elsewhere.iterdir()}
    assert contents == {"secret": "secret", "authorized_keys": "root's"}


def test_a_directory_in_place_of_the_keys_is_moved_aside(host: Host) -> None:
    apply(host, person("ada"))
    at = home(host, "ada") / ".ssh"
    (at / "authorized_keys").unlink()
    (at / "authorized_keys/mine").mkdir(parents=True)
    assert told(host, person("ada"))["ada"]["why"] == (
        "authorized_keys was something else, which is authorized_keys.before-1 now"
    )
    assert (keys(host, "ada"), (at / "authorized_keys.before-1/mine").is_dir()) == (f"{key_of('ada')}\n", True)


def test_a_home_that_is_no_directory_is_refused(host: Host) -> None:
    (host.root / "home/ada").symlink_to("/tmp")
    entries = told(host, person("ada"), person("bob"))
    assert entries["ada"]["why"] == f"{host.root}/home/ada is no directory"
    assert entries["bob"]["state"] == "made"


def test_runs_are_readable_by_the_operator_for_as_long_as_the_person_agrees(host: Host) -> None:
    apply(host, person("ada"))
    (home(host, "ada") / "runs/ada-1").mkdir()
    shared = host.base / "people/ada"
    apply(host, person("ada", share=True))
    assert (home(host, "ada") / "runs").readlink() == shared
    assert (mode(shared), (shared / "ada-1").is_dir()) == (0o2750, True)
    assert apply(host, person("ada", share=True)) == {"ada": "kept"}
    apply(host, person("ada"))
    assert (mode(shared), list(shared.iterdir())) == (0o700, [])
    assert (home(host, "ada") / "runs/ada-1").is_dir()
    assert mode(home(host, "ada") / "runs") == 0o750


def sent(host: Host, tmp_path: Path, *, depth: int = 0) -> str:
    """The operator's checkout of a repository, as `tpufleet sync` leaves it; gives its commit."""
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "--quiet", "--initial-branch=main")
    commit(work, "first")
    head = commit(work, "second")
    if depth:
        shallow = tmp_path / "shallow"
        subprocess.run(["git", "clone", "--quiet", "--depth", str(depth), f"file://{work}", str(shallow)], check=True)
        work = shallow
    send(host, work, head)
    host.call("code", repo=REPO, commit=head, **({"shallow": [head]} if depth else {}))
    return head


@pytest.mark.parametrize("depth", [0, 1])
def test_the_code_is_cloned_from_the_hosts_own_and_is_of_the_url(host: Host, tmp_path: Path, depth: int) -> None:
    head = sent(host, tmp_path, depth=depth)
    clone = {"url": URL, "name": "work", "mirror": REPO}
    assert told(host, person("ada", clone=clone))["ada"]["why"] is None
    at = home(host, "ada") / "work"
    assert git(at, "rev-parse", "HEAD").strip() == head
    assert git(at, "branch", "--show-current").strip() == "main"
    assert git(at, "remote", "get-url", "origin").strip() == URL
    assert git(at, "status", "--porcelain") == ""
    assert not (at / ".git/objects/info/alternates").exists()
    (at / "mine").write_text("x")
    shutil.rmtree(at / ".git")
    assert apply(host, person("ada", clone=clone)) == {"ada": "kept"}
    assert (at / "mine").exists()


def test_a_clone_that_fails_is_said_and_the_account_is_there(host: Host) -> None:
    clone = {"url": "https://127.0.0.1:9/no/where.git", "name": "work", "mirror": "0123456789abcdef"}
    entry = told(host, person("ada", clone=clone))["ada"]
    assert (entry["state"], entry["why"].startswith("work is not cloned: git clone: ")) == ("made", True)
    assert keys(host, "ada") is not None
    assert [path.name for path in home(host, "ada").iterdir() if "work" in path.name] == []


def test_nobody_waits_for_a_clone_to_be_revoked(host: Host) -> None:
    """A clone that hangs holds up the answer, and neither another person's end nor their own."""
    waiting = host.root / "usr/local/bin/git"
    waiting.write_text(f"#!/bin/sh\ntouch {host.root}/begun\nexec sleep 600\n")
    waiting.chmod(0o755)
    apply(host, person("bob"))
    clone = {"url": URL, "name": "work", "mirror": None}
    with host.start("accounts") as slow:
        assert slow.stdin
        slow.stdin.write(json.dumps(request(person("ada", clone=clone), person("bob"))).encode() + b"\n")
        slow.stdin.flush()
        wait_until((host.root / "begun").exists, "the clone has begun")
        with host.start("accounts") as quick:
            assert quick.stdin
            quick.stdin.write(json.dumps(request(person("ada"))).encode() + b"\n")
            quick.stdin.flush()
            wait_until(lambda: written(host)["bob"]["state"] == "revoked", "bob is out")
            slow.kill()
            assert quick.wait(20) == 0
