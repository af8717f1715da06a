"""A namespace host with the agent on it, its operator, and people who log in with OpenSSH's client: real uids."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulator.rig import Rig, Shell
from tpufleet.ops.startup import startup_script
from tpufleet.ssh.bundle import bundle

from .people import person, request

BASE = "/var/lib/tpufleet"


@dataclass
class Machine:
    """The host `NAME-w0` of a node of its own, which wakes its agent at boot."""

    rig: Rig
    name: str
    keys: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        script = startup_script(None, keeps_ttl=False)
        node = self.rig.create(self.name, metadata={"ssh-keys": self.rig.ssh_keys(), "startup-script": script})
        self.shell = Shell(self.rig.config(node))
        self.agent = f"{BASE}/lib/{bundle().digest}"
        self.shell.output(f"sudo -n install -d -o tpufleet {BASE} {BASE}/lib {self.agent}")
        sent = self.shell.ssh(f"tar -xf - -C {self.agent}", stdin=bundle().tar)
        assert sent.returncode == 0, sent

    def reboot(self) -> None:
        assert self.rig.http("POST", f"/emulator/faults/reboot/{self.name}-w0")[0] == 200

    def person(self, name: str, *seat: int, **fields: Any) -> dict[str, Any]:
        """An entry of the request, with a key that the person has."""
        if name not in self.keys:
            self.keys[name] = self.rig.directory / f"{self.name}-{name}"
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.keys[name]], check=True)
        public = self.keys[name].with_suffix(".pub").read_text().split()
        return person(name, *seat, **({"key": " ".join(public[:2])} | fields))

    def start(self, verb: str, asked: dict[str, Any]) -> subprocess.Popen[bytes]:
        command = f"sudo -n env -u LD_PRELOAD python3 -ES {self.agent} {verb}"
        process = subprocess.Popen(
            ["ssh", "-F", str(self.shell.config), "w0", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def ask(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What the verb gives, asked by the operator for root."""
        with self.start(verb, asked) as process:
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 0, out
        return json.loads(out)

    def told(self, *people: dict[str, Any], **fields: Any) -> dict[str, dict[str, Any]]:
        """Makes the accounts equal; what is said of each by name."""
        return {entry["name"]: entry for entry in self.ask("accounts", request(*people, **fields))["accounts"]}

    def apply(self, *people: dict[str, Any], **fields: Any) -> dict[str, str]:
        return {name: entry["state"] for name, entry in self.told(*people, **fields).items()}

    def written(self) -> dict[str, dict[str, Any]]:
        """What people.json says, by name."""
        text = self.shell.output(f"cat {BASE}/people.json")
        return {entry["name"]: entry for entry in json.loads(text)["people"]}

    def _words(self, name: str, command: Sequence[str]) -> list[str]:
        options = ["-o", f"IdentityFile={self.keys[name]}", "-o", "IdentityAgent=none"]
        return ["ssh", *options, "-F", str(self.shell.config), "-l", name, "w0", *command]

    def run_as(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in a session of the person's."""
        words = self._words(name, command)
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, input="")

    def said_to(self, name: str, *command: str) -> str:
        """What a command of the person's prints; fails the test when it fails."""
        done = self.run_as(name, *command)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def session_of(self, name: str, command: str) -> subprocess.Popen[bytes]:
        """A session that goes on; `command` has begun when this returns."""
        process = subprocess.Popen(
            self._words(name, [f"echo begun; {command}"]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        return process
