"""What the emulator's tests share: a running emulator with a key, the real clients pointed at it, patience."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports.rest import TpuRestTransport

from tests.project import until
from tpufleet.emulator import launch

ZONE = "us-central1-b"
PARENT = f"projects/p/locations/{ZONE}"
RUNTIME = "tpu-ubuntu2204-base"
USER = "tpufleet"


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in (b"Z", b"X")


@dataclass
class Rig:
    """A running emulator in `directory`; what it made is forgotten with it."""

    directory: Path
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.emulator = self.directory / "emulator"
        self.key = self.directory / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", self.key], check=True)
        self.start()

    def start(self) -> None:
        self.running = launch.start(self.emulator, create_seconds=0, **self.options)
        self.client = tpu_v2.TpuClient(
            transport=TpuRestTransport(
                host=self.running.url.removeprefix("http://"), url_scheme="http", credentials=AnonymousCredentials()
            )
        )

    def stop(self) -> bool:
        return launch.stop(self.emulator)

    def ssh_keys(self, user: str = USER) -> str:
        return f"{user}:{self.key.with_suffix('.pub').read_text()}"

    def wanted(self, accelerator: str = "v2-8", runtime: str = RUNTIME, **fields: Any) -> tpu_v2.Node:
        fields.setdefault("metadata", {"ssh-keys": self.ssh_keys()})
        return tpu_v2.Node(accelerator_type=accelerator, runtime_version=runtime, **fields)

    def create(self, name: str, accelerator: str = "v2-8", parent: str = PARENT, **fields: Any) -> tpu_v2.Node:
        """The node `name`, READY."""
        node = self.wanted(accelerator, **fields)
        self.client.create_node(parent=parent, node=node, node_id=name, timeout=10)
        return self.await_state(f"{parent}/nodes/{name}", "READY")

    def await_state(self, name: str, state: str) -> tpu_v2.Node:
        def found() -> tpu_v2.Node | None:
            node = self.client.get_node(name=name, timeout=10)
            return node if node.state.name == state else None

        return until(found, f"{name} is {state}")

    def await_queued(self, name: str, state: str, parent: str = PARENT) -> tpu_v2.QueuedResource:
        """The queued resource with the id `name`, once it is in `state`."""

        def found() -> tpu_v2.QueuedResource | None:
            queued = self.client.get_queued_resource(name=f"{parent}/queuedResources/{name}", timeout=10)
            return queued if queued.state.state.name == state else None

        return until(found, f"{name} is {state}")

    def delete(self, name: str) -> None:
        self.client.delete_node(name=f"{PARENT}/nodes/{name}", timeout=10)
        until(lambda: name not in self.names(), f"{name} is gone")

    def names(self) -> list[str]:
        return [node.name.rpartition("/")[2] for node in self.client.list_nodes(parent=PARENT, timeout=10)]

    def root(self, host: str) -> Path:
        return self.emulator / "hosts" / host / "root"

    def config(self, node: tpu_v2.Node) -> Path:
        """An OpenSSH config with hosts `w0`, `w1`, …, trusting the keys that the guest attributes say."""
        name = node.name.rpartition("/")[2]
        request = tpu_v2.GetGuestAttributesRequest(name=node.name, query_path="hostkeys/", worker_ids=[""])
        answer = self.client.get_guest_attributes(request, timeout=10)
        known, config = self.directory / f"{name}.known", self.directory / f"{name}.config"
        known.write_text(
            "".join(
                f"{name}-w{worker} ssh-ed25519 {attributes.query_value.items[0].value}\n"
                for worker, attributes in enumerate(answer.guest_attributes)
            )
        )
        config.write_text(
            "".join(
                f"Host w{worker}\n HostName {end.ip_address}\n HostKeyAlias {name}-w{worker}\n"
                for worker, end in enumerate(node.network_endpoints)
            )
            + f"Host *\n Port {self.running.ssh_port}\n User {USER}\n IdentityFile {self.key}\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {known}\n StrictHostKeyChecking yes\n BatchMode yes\n"
            " KexAlgorithms curve25519-sha256\n"  # OpenSSH's default costs its client 0.25 s of CPU
        )
        config.chmod(0o600)
        return config

    def http(
        self, method: str, path: str, body: Any = None, headers: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, Any]:
        """A bare HTTP request to the API: the status and the JSON of the answer."""
        connection = http.client.HTTPConnection(self.running.url.removeprefix("http://"), timeout=20)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, dict(headers))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@dataclass
class Shell:
    """OpenSSH's clients pointed at one node."""

    config: Path

    def ssh(
        self, *command: str, worker: int = 0, options: Sequence[str] = (), stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return self.run("ssh", *options, f"w{worker}", *command, stdin=stdin)

    def run(self, program: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        line = [program, "-F", str(self.config), *arguments]
        return subprocess.run(line, input=stdin, capture_output=True, timeout=60, check=False)

    def output(self, command: str, worker: int = 0) -> str:
        """What `command` prints; fails the test when it fails."""
        done = self.ssh(command, worker=worker)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()
