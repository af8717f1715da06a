"""Google's own command line, as it comes, against the emulator: what passes here is typed the same way at Google."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tpufleet.cloud import tpu_api

from .rig import PARENT, RUNTIME, ZONE, Rig

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]

POD_ZONE = "europe-west4-a"


@dataclass
class Gcloud:
    """`gcloud compute tpus …` with a home and a configuration of its own, pointed at `rig`."""

    rig: Rig
    home: Path

    def run(self, *words: str, zone: str = ZONE, track: str = "") -> subprocess.CompletedProcess[str]:
        url = self.rig.running.url
        environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "CLOUDSDK_CONFIG": str(self.home / "gcloud"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": "p",
            "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            "CLOUDSDK_COMPUTE_ZONE": zone,
        }
        line = ["gcloud", *([track] if track else []), "compute", "tpus", *words]
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def ask(self, *words: str, track: str = "") -> Any:
        """What it answers, from JSON; fails the test when it fails."""
        done = self.run(*words, "--format=json", track=track)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    def names(self, *words: str) -> list[str]:
        return [one["name"].rpartition("/")[2] for one in self.ask(*words)]


@pytest.fixture
def gcloud(shared: Rig, tmp_path: Path) -> Gcloud:
    key = tmp_path / ".ssh/google_compute_engine"  # else gcloud makes one, and draws its picture on the output
    key.parent.mkdir(mode=0o700)
    shutil.copy(shared.key, key)
    shutil.copy(shared.key.with_suffix(".pub"), key.with_suffix(".pub"))
    return Gcloud(shared, tmp_path)


def port(rig: Rig, flag: str) -> list[str]:
    """gcloud knows no port but 22; where the emulator can't listen there, ssh is told."""
    return [] if rig.running.ssh_port == 22 else [f"{flag}=-oPort={rig.running.ssh_port}"]


def test_gcloud_creates_updates_stops_starts_and_deletes_a_node(shared: Rig, gcloud: Gcloud, name: str) -> None:
    made = gcloud.ask(
        *("tpu-vm", "create", name, "--accelerator-type=v2-8", f"--version={RUNTIME}"),
        *(
            "--labels=fleet=f",
            "--metadata=colour=blue",
            "--tags=t",
            "--scopes=https://www.googleapis.com/auth/cloud-platform",
        ),
        *("--spot", "--internal-ips", "--data-disk=source=projects/p/zones/us-central1-b/disks/d,mode=read-only"),
    )
    assert (made["state"], made["labels"], made["metadata"]) == ("READY", {"fleet": "f"}, {"colour": "blue"})
    assert made["schedulingConfig"]["spot"]
    assert "accessConfig" not in made["networkEndpoints"][0]
    assert made["dataDisks"] == [{"mode": "READ_ONLY", "sourceDisk": "projects/p/zones/us-central1-b/disks/d"}]

    gcloud.ask("tpu-vm", "update", name, "--update-labels=more=1", "--add-tags=u", "--description=mine")
    described = gcloud.ask("tpu-vm", "describe", name)
    assert (described["labels"], described["tags"]) == ({"fleet": "f", "more": "1"}, ["t", "u"])
    assert described["description"] == "mine"
    assert described["dataDisks"] == made["dataDisks"]

    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        gcloud.ask("tpu-vm", verb, name)
        assert shared.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10).state.name == state

    assert name in gcloud.names("tpu-vm", "list")
    assert name in gcloud.names("list")  # the v1 API
    assert name in [node.name for node in tpu_api.rehearsal("p", shared.running.url, 22).nodes(ZONE)]
    gcloud.ask("tpu-vm", "delete", name)
    assert name not in shared.names()
    gone = gcloud.run("tpu-vm", "describe", name)
    assert gone.returncode == 1
    assert f"Resource '{PARENT}/nodes/{name}' was not found" in gone.stderr


def test_gcloud_creates_lists_describes_and_deletes_queued_resources(shared: Rig, gcloud: Gcloud, name: str) -> None:
    gcloud.ask(
        *("queued-resources", "create", name, f"--node-id={name}-n", "--accelerator-type=v2-8"),
        *(f"--runtime-version={RUNTIME}", "--spot", "--valid-until-duration=6h"),
    )
    node = shared.await_state(f"{PARENT}/nodes/{name}-n", "READY")
    assert node.queued_resource == f"{PARENT}/queuedResources/{name}"
    shared.await_queued(name, "ACTIVE")
    described = gcloud.ask("queued-resources", "describe", name)
    assert described["state"]["state"] == "ACTIVE"
    assert described["queueingPolicy"] == {"validUntilDuration": "21600s"}
    assert name in gcloud.names("queued-resources", "list")

    refused = gcloud.run("queued-resources", "delete", name)
    assert refused.returncode == 1
    assert "can't be deleted while in state ACTIVE" in refused.stderr
    assert gcloud.run("queued-resources", "delete", name, "--force").returncode == 0
    assert name not in gcloud.names("queued-resources", "list")
    assert f"{name}-n" not in shared.names()


def test_gcloud_says_a_stock_out_in_googles_words(rig: Rig, tmp_path: Path, name: str) -> None:
    rig.http("POST", f"/emulator/faults/stockout/{ZONE}", {})
    done = Gcloud(rig, tmp_path).run("tpu-vm", "create", name, "--accelerator-type=v2-8", f"--version={RUNTIME}")
    assert done.returncode == 1
    assert '"code": 8' in done.stderr
    assert "There is no more capacity in the zone" in done.stderr
    assert name not in rig.names()


@pytest.mark.parametrize(
    ("words", "key", "holds"),
    [
        (("accelerator-types", "list"), "type", "v2-8"),
        (("tpu-vm", "accelerator-types", "list"), "type", "v2-8"),
        (("versions", "list"), "version", "nightly"),
        (("tpu-vm", "versions", "list"), "version", RUNTIME),
        (("locations", "list"), "locationId", ZONE),
    ],
)
def test_gcloud_lists_what_there_is(gcloud: Gcloud, words: tuple[str, ...], key: str, holds: str) -> None:
    assert holds in [one[key] for one in gcloud.ask(*words)]


def test_gcloud_alpha_makes_slices_simulates_a_maintenance_and_sees_what_others_made(
    shared: Rig, gcloud: Gcloud, name: str
) -> None:
    if gcloud.run("tpu-vm", "list", track="alpha").returncode:
        pytest.skip("gcloud's alpha component is not installed")
    shared.create(name)
    gcloud.ask("tpu-vm", "simulate-maintenance-event", name, "--workers=0", track="alpha")
    seen = gcloud.ask("tpu-vm", "describe", name, track="alpha")
    assert (seen["health"], seen["upcomingMaintenance"]["type"]) == ("UNHEALTHY_MAINTENANCE", "UNSCHEDULED")

    gcloud.ask(
        *("queued-resources", "create", f"{name}-q", "--node-count=2", f"--node-prefix={name}-s"),
        *("--accelerator-type=v2-8", f"--runtime-version={RUNTIME}", "--best-effort"),
        track="alpha",
    )
    shared.await_queued(f"{name}-q", "ACTIVE")
    done = gcloud.run(
        *("queued-resources", "ssh", f"{name}-q", "--node=all", "--worker=all", "--command=hostname"),
        *port(shared, "--ssh-flag"),
        track="alpha",
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [f"{name}-s-0-w0", f"{name}-s-1-w0"]
    assert gcloud.run("queued-resources", "delete", f"{name}-q", "--force", track="alpha").returncode == 0


def test_gcloud_runs_a_command_on_every_worker_of_a_slice_and_copies_files(
    shared: Rig, gcloud: Gcloud, name: str, tmp_path: Path
) -> None:
    shared.create(name, "v3-32", parent=f"projects/p/locations/{POD_ZONE}")
    done = gcloud.run(
        *("tpu-vm", "ssh", f"ada@{name}", "--worker=all", "--command=hostname; whoami"),
        *port(shared, "--ssh-flag"),
        zone=POD_ZONE,
    )
    assert done.returncode == 0, done.stderr
    expected = [f"{name}-w{worker}" for worker in range(4)] + ["ada"] * 4
    assert sorted(done.stdout.split()) == sorted(expected)

    (tmp_path / "file").write_text("hello")
    options = port(shared, "--scp-flag")
    sent = gcloud.run(
        *("tpu-vm", "scp", str(tmp_path / "file"), f"ada@{name}:sent", "--worker=all", *options), zone=POD_ZONE
    )
    assert sent.returncode == 0, sent.stderr
    assert [(shared.root(f"{name}-w{worker}") / "home/ada/sent").read_text() for worker in range(4)] == ["hello"] * 4
    brought = gcloud.run(
        "tpu-vm", "scp", f"ada@{name}:sent", str(tmp_path / "back"), "--worker=3", *options, zone=POD_ZONE
    )
    assert brought.returncode == 0, brought.stderr
    assert (tmp_path / "back").read_text() == "hello"
    failed = gcloud.run("tpu-vm", "ssh", f"ada@{name}", "--command=exit 7", *port(shared, "--ssh-flag"), zone=POD_ZONE)
    assert failed.returncode == 7
