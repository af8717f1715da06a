"""An evening with people on the rehearsal cloud: a fleet, keys as OpenSSH makes them, and OpenSSH's own client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project, missing
from tpufleet.emulator import namespace

TRAIN = """\
import json, os, pathlib, sys
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
print("chip", os.environ.get("TPU_VISIBLE_CHIPS"), os.environ["PJRT_DEVICE"], flush=True)
with (run / "metrics.jsonl").open("a") as file:
    print(json.dumps({"step": 3, "test_loss": 2.5}), file=file)
with (run / "completions.jsonl").open("a") as file:
    print(json.dumps({"step": 3, "prompt": "Elementary, ", "text": "my dear <b>Watson</b>"}), file=file)
point = run / "checkpoints/step-00000003"
point.mkdir(parents=True)
(point / "weights").write_bytes(bytes(range(256)) * 1000)
"""
JOBS = "  train: {command: [python3, train.py]}\n"
NO_NAMESPACES = missing("ssh") or namespace.why_not(Path("/tmp"))
KINDS = [
    pytest.param("process", marks=pytest.mark.skipif(missing("ssh") is not None, reason=str(missing("ssh")))),
    pytest.param("namespace", marks=pytest.mark.skipif(NO_NAMESPACES is not None, reason=str(NO_NAMESPACES))),
]


@dataclass
class Evening:
    """The project, and the key files of its people by name."""

    project: Project
    keys: dict[str, Path] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, directory: Path, kind: str, *, count: int = 1) -> Evening:
        """A fleet of `kind` hosts that is up, nobody in its list yet; its code is TRAIN."""
        project = Project.make(directory, count=count, jobs=JOBS)
        file = directory / "tpufleet.yaml"
        file.write_text(file.read_text().replace("create_seconds: 0", f"create_seconds: 0, hosts: {kind}"))
        (directory / "code/train.py").write_text(TRAIN)
        project.commit("Training")
        project.run("create")
        return cls(project)

    def key(self, name: str) -> Path:
        """A new key for `name`, as ssh-keygen makes it."""
        file = self.project.directory / f"key-{name}"
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@laptop", "-f", str(file)]
        subprocess.run(words, check=True)
        self.keys[name] = file
        return file

    def invite(self, name: str, *more: str) -> None:
        """Put `name` into the list, with a new key."""
        self.project.run("people", "add", name, str(self.key(name).with_suffix(".pub")), *more)

    def address(self, host: str = "tpu-0-w0") -> str:
        """Asked for once: no host of an evening moves."""
        if host not in self.addresses:
            nodes = self.project.json("status")["nodes"]
            self.addresses |= {one["name"]: one["address"] for node in nodes for one in node["hosts"]}
        return self.addresses[host]

    def ssh_words(self, name: str, host: str = "tpu-0-w0") -> list[str]:
        known = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        words = ["ssh", "-F", "/dev/null", *known, "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
        return [*words, "-i", str(self.keys[name]), f"{name}@{self.address(host)}"]

    def ssh(self, name: str, command: str, host: str = "tpu-0-w0") -> subprocess.CompletedProcess[str]:
        """OpenSSH's client as `name` would use it."""
        words = [*self.ssh_words(name, host), command]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)

    def output(self, name: str, command: str, host: str = "tpu-0-w0") -> str:
        done = self.ssh(name, command, host)
        assert done.returncode == 0, done
        return done.stdout

    def status(self) -> Any:
        return self.project.json("status")
