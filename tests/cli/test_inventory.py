"""Hosts that somebody gave access to: no Google, no account, two real SSH servers; typed as a person types it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.project import JOBS, Project, missing
from tests.ssh.servers import SSHD, OpenSsh
from tpufleet.ssh.keys import ensure_key

pytestmark = pytest.mark.skipif(SSHD is None or missing("ssh") is not None, reason="OpenSSH is not installed")


@dataclass
class Given:
    """A project, and the two hosts of four chips that its person may use."""

    project: Project
    servers: list[OpenSsh]

    def write(self, *, keys: bool = True, more: str = "") -> None:
        """The fleet file, with or without the hosts' keys in it."""
        hosts = ""
        for index, server in enumerate(self.servers):
            key = f", host_key: {server.host_line}" if keys else ""
            hosts += f"    - {{name: tpu-{index}, address: 127.0.0.1, port: {server.port}, accelerator: v2-8"
            hosts += f", user: {server.user}{key}}}\n"
        (self.project.directory / "tpufleet.yaml").write_text(
            f"fleet: sherlock\ncloud:\n  provider: inventory\n  hosts:\n{hosts}"
            f"ssh: {{key: my key{more}}}\ncode: {{repo: code}}\njobs:\n{JOBS}"
        )


@pytest.fixture
def given(tmp_path: Path) -> Iterator[Given]:
    project = Project.make(tmp_path / "project")
    project.env = {"HOME": str(tmp_path), "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere"}
    line = ensure_key(project.directory / "my key")
    servers: list[OpenSsh] = []
    for index in range(2):
        (tmp_path / f"server-{index}").mkdir()
        server = OpenSsh(tmp_path / f"server-{index}")
        server.authorized.write_text(line + "\n")
        (server.root / "dev").mkdir()
        for chip in range(4):
            (server.root / "dev" / f"accel{chip}").touch()
        servers.append(server)
    given = Given(project, servers)
    given.write()
    yield given
    for server in servers:
        server.stop()


def test_from_create_to_collect_on_hosts_that_were_there_before(given: Given) -> None:
    project = given.project
    assert project.json("create", "--dry-run")["actions"] == []
    created = project.json("create")
    assert [(host["name"], host["chips"]) for host in created["hosts"]] == [("tpu-0-w0", 4), ("tpu-1-w0", 4)]
    assert project.json("create")["changed"] is False
    assert not (project.directory / ".tpufleet" / "key").exists(), "the person's own key is used"

    nodes = project.json("status")["nodes"]
    assert [(node["name"], node["zone"], node["state"]) for node in nodes] == [
        ("tpu-0", "inventory", "READY"),
        ("tpu-1", "inventory", "READY"),
    ]
    assert project.run("exec", "--", "echo", "here").stdout.count("here") == 2
    assert project.run("ssh", "tpu-1", "--", "echo", "one").stdout == "one\n"
    started = project.json("run", "job", "--follow", "--grid", "seed=0,1,2,3,4,5,6,7")
    assert len(started["placed"]) == 8
    collected = project.json("collect")
    runs = json.loads((Path(collected["home"]) / "runs.json").read_text())["runs"]
    assert {run["state"] for run in runs} == {"done"}
    assert len({chip for run in runs for chip in run["chips"]}) == 8


def test_nothing_is_deleted_since_nothing_was_made(given: Given) -> None:
    given.project.run("create")
    done = given.project.run("delete", "--yes")
    assert "the 2 hosts of cloud.hosts stay" in done.stdout
    assert given.project.json("delete", "--dry-run") == {
        "schema": 1,
        "fleet": "sherlock",
        "dry_run": True,
        "deleted": [],
        "proof": [],
    }
    assert "nothing to do" in given.project.run("create").stdout


def test_the_hosts_that_a_persons_own_ssh_knows_need_no_key_in_the_file(given: Given, tmp_path: Path) -> None:
    given.write(keys=False)
    known = tmp_path / ".ssh" / "known_hosts"
    known.parent.mkdir()
    known.write_text("".join(f"[127.0.0.1]:{server.port} {server.host_line}\n" for server in given.servers))
    assert len(given.project.json("create")["hosts"]) == 2


def test_a_host_whose_key_nobody_knows_is_left_alone_and_told_how_to_mend(given: Given) -> None:
    given.write(keys=False)
    done = given.project.run("create", ok=False)
    assert done.exit_code == 5
    assert "host key is unknown" in done.stderr
    assert "ssh-keyscan" in done.stderr
    assert all(server.accepted == 0 for server in given.servers)


def test_a_host_that_was_changed_on_purpose_is_trusted_again_by_its_new_key_in_the_file(given: Given) -> None:
    given.project.run("create")
    server = given.servers[0]
    server.host_key.unlink()
    server.host_line = ensure_key(server.host_key)
    refused = given.project.run("create", ok=False)
    assert "write its new key as host_key of tpu-0" in refused.stderr
    given.write()
    given.project.run("create")


def test_a_key_that_the_hosts_do_not_know_is_named_with_the_command_to_try(given: Given) -> None:
    for server in given.servers:
        server.authorized.write_text("")
    done = given.project.run("status")
    assert "does not accept the key" in done.stdout
    created = given.project.run("create", ok=False)
    assert "try: ssh -p" in created.stderr


def test_hosts_behind_a_jump_host_do_the_same(given: Given, tmp_path: Path) -> None:
    (tmp_path / "bastion").mkdir()
    bastion = OpenSsh(tmp_path / "bastion")
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{bastion.port} {bastion.host_line}\n")
    (tmp_path / "bin").mkdir()
    mine = f"-F /dev/null -i {bastion.key} -o UserKnownHostsFile={known}"
    # the person's own configuration, for the outer ssh only: ours names its file itself
    (tmp_path / "bin" / "ssh").write_text(
        f'#!/bin/sh\ncase "$1" in -F) exec {shutil.which("ssh")} "$@";; esac\nexec {shutil.which("ssh")} {mine} "$@"\n'
    )
    (tmp_path / "bin" / "ssh").chmod(0o755)
    given.project.env["PATH"] = f"{tmp_path / 'bin'}:/usr/bin:/bin:/usr/sbin"
    given.write(more=f", jump: '{bastion.user}@127.0.0.1:{bastion.port}'")
    try:
        assert len(given.project.json("create")["hosts"]) == 2
        assert bastion.accepted == 2
        assert given.project.run("ssh", "tpu-1", "--", "echo", "one").stdout == "one\n"
        assert bastion.accepted == 3
    finally:
        bastion.stop()
