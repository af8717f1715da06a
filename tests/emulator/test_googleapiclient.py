"""Google's discovery-based client (`googleapiclient`), which skypilot and others use, against the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials

from .rig import PARENT, RUNTIME, ZONE, Rig, Shell, until

discovery = pytest.importorskip("googleapiclient.discovery", reason="google-api-python-client is not installed")
errors = pytest.importorskip("googleapiclient.errors")

Locations = Any  # the client's classes are made at run time


@contextmanager
def connected(rig: Rig, version: str) -> Iterator[Locations]:
    """`projects().locations()` of the API's `version`, by the discovery document that the client brings along."""
    options = {"api_endpoint": rig.running.url}
    with discovery.build(
        "tpu", version, static_discovery=True, credentials=AnonymousCredentials(), client_options=options
    ) as client:
        yield client.projects().locations()


def finished(locations: Locations, operation: dict[str, Any]) -> dict[str, Any]:
    """The operation when it is done."""

    def look() -> dict[str, Any] | None:
        found = locations.operations().get(name=operation["name"]).execute()
        return dict(found) if found["done"] else None

    return dict(until(look, f"{operation['name']} is done"))


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(errors.HttpError) as raised:
        call()
    return raised.value.resp.status, raised.value.reason


def test_nodes_from_their_creation_to_their_end(shared: Rig, name: str) -> None:
    with connected(shared, "v2") as locations:
        nodes, full = locations.nodes(), f"{PARENT}/nodes/{name}"
        body = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME, "labels": {"a": "b"}}
        created = finished(locations, nodes.create(parent=PARENT, nodeId=name, body=body).execute())
        assert created["response"]["state"] == "READY"
        assert created["metadata"]["verb"] == "create"
        assert refused(nodes.create(parent=PARENT, nodeId=name, body=body).execute)[0] == 409

        changed = {"labels": {"c": "d"}}
        operation = nodes.patch(name=full, body=changed, updateMask="labels").execute()
        assert finished(locations, operation)["response"]["labels"] == {"c": "d"}
        assert finished(locations, nodes.stop(name=full, body={}).execute())["response"]["state"] == "STOPPED"
        assert finished(locations, nodes.start(name=full, body={}).execute())["response"]["state"] == "READY"
        keys = nodes.getGuestAttributes(name=full, body={"queryPath": "hostkeys/", "workerIds": [""]}).execute()
        assert len(keys["guestAttributes"]) == 1
        assert full in [node["name"] for node in nodes.list(parent=PARENT).execute()["nodes"]]

        assert "error" not in finished(locations, nodes.delete(name=full).execute())
        assert refused(nodes.get(name=full).execute) == (404, f"Resource '{full}' was not found")


def test_queued_resources_from_their_creation_to_their_end(shared: Rig, name: str) -> None:
    with connected(shared, "v2") as locations:
        queue, full = locations.queuedResources(), f"{PARENT}/queuedResources/{name}"
        node = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME}
        body = {"tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": name, "node": node}]}, "spot": {}}
        operation = queue.create(parent=PARENT, queuedResourceId=name, requestId=f"id-of-{name}", body=body).execute()
        assert finished(locations, operation)["response"]["name"] == full
        shared.await_queued(name, "ACTIVE")
        assert queue.get(name=full).execute()["state"] == {
            "state": "ACTIVE",
            "stateInitiator": "SERVICE",
            "activeData": {},
        }
        assert refused(queue.delete(name=full).execute)[0] == 400
        finished(locations, queue.reset(name=full, body={}).execute())
        finished(locations, queue.delete(name=full, force=True).execute())
        assert "queuedResources" not in queue.list(parent=PARENT).execute() or full not in [
            one["name"] for one in queue.list(parent=PARENT).execute()["queuedResources"]
        ]


def test_operations_can_be_listed_cancelled_and_forgotten(shared: Rig, name: str) -> None:
    parent = f"projects/{name}-p/locations/{ZONE}"
    with connected(shared, "v2") as locations:
        operations = locations.operations()
        body = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME}
        begun = finished(locations, locations.nodes().create(parent=parent, nodeId=name, body=body).execute())
        assert [one["name"] for one in operations.list(name=parent).execute()["operations"]] == [begun["name"]]
        assert operations.cancel(name=begun["name"]).execute() == {}
        assert operations.get(name=begun["name"]).execute()["metadata"]["cancelRequested"]
        assert operations.delete(name=begun["name"]).execute() == {}
        assert refused(operations.get(name=begun["name"]).execute)[0] == 404


@pytest.mark.parametrize("version", ["v1", "v2", "v2alpha1"])
def test_every_version_tells_what_there_is(shared: Rig, version: str) -> None:
    with connected(shared, version) as locations:
        types = locations.acceleratorTypes().list(parent=PARENT).execute()["acceleratorTypes"]
        assert "v2-8" in [one["type"] for one in types]
        assert locations.acceleratorTypes().get(name=types[0]["name"]).execute() == types[0]
        named = locations.tensorflowVersions() if version == "v1" else locations.runtimeVersions()
        versions = next(iter(named.list(parent=PARENT).execute().values()))
        assert named.get(name=versions[0]["name"]).execute() == versions[0]
        assert locations.get(name=PARENT).execute()["locationId"] == ZONE
        everywhere = locations.list(name="projects/p").execute()["locations"]
        assert ZONE in [one["locationId"] for one in everywhere]


def test_the_alpha_version_creates_once_per_request_id_and_has_boot_disks(shared: Rig, name: str) -> None:
    with connected(shared, "v2alpha1") as locations:
        nodes, full = locations.nodes(), f"{PARENT}/nodes/{name}"
        disk = {"customerEncryptionKey": {"kmsKeyName": "k"}, "enableConfidentialCompute": True}
        body = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME, "bootDiskConfig": disk}
        call = {"parent": PARENT, "nodeId": name, "requestId": f"id-of-{name}", "body": body}
        first, second = nodes.create(**call).execute(), nodes.create(**call).execute()
        assert first["name"] == second["name"]
        made = finished(locations, first)["response"]
        assert (made["bootDiskConfig"], made["apiVersion"]) == (disk, "V2_ALPHA1")
        assert made["@type"] == "type.googleapis.com/google.cloud.tpu.v2alpha1.Node"
    assert "bootDiskConfig" not in shared.http("GET", f"/v2/{full}")[1]


def test_the_projects_keys_open_the_hosts_unless_the_node_blocks_them(shared: Rig, name: str) -> None:
    """The way of `gcloud compute project-info add-metadata`."""
    project = f"{name}-k"
    with discovery.build(
        *("compute", "v1"),
        static_discovery=True,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"{shared.running.url}/compute/v1/"},
    ) as compute:
        metadata = compute.projects().get(project=project).execute()["commonInstanceMetadata"]
        metadata["items"] = [{"key": "ssh-keys", "value": shared.ssh_keys()}]
        setting = {"project": project, "body": metadata}
        done = compute.projects().setCommonInstanceMetadata(**setting).execute()
        assert compute.globalOperations().get(project=project, operation=done["name"]).execute()["status"] == "DONE"
        assert compute.globalOperations().wait(project=project, operation=done["name"]).execute()["status"] == "DONE"
        assert refused(compute.projects().setCommonInstanceMetadata(**setting).execute)[0] == 412

    parent = f"projects/{project}/locations/{ZONE}"
    open_node = shared.create(f"{name}-open", parent=parent, metadata={})
    closed_node = shared.create(f"{name}-shut", parent=parent, metadata={"block-project-ssh-keys": "TRUE"})
    shell = Shell(shared.config(open_node))
    assert shell.ssh("true").returncode == 0
    seen = (
        'curl -s -H "Metadata-Flavor: Google" http://$GCE_METADATA_HOST/computeMetadata/v1/project/attributes/ssh-keys'
    )
    assert shell.output(seen) == shared.ssh_keys().strip()
    assert Shell(shared.config(closed_node)).ssh("true").returncode == 255
