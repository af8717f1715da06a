"""Google's messages ↔ our model, over a real socket."""

from __future__ import annotations

import dataclasses

import pytest

from tpufleet import labels
from tpufleet.cloud import wire
from tpufleet.cloud.port import ALL_ZONES, NodeRequest
from tpufleet.cloud.tpu_api import TpuCloud
from tpufleet.errors import CloudUnreachable
from tpufleet.model import NodeState, QueuedState

from .google import Answer, Google

ZONE = "us-central1-b"
PARENT = f"projects/p-1234/locations/{ZONE}"
REQUEST = NodeRequest(
    name="tpu-0",
    zone=ZONE,
    accelerator="v3-32",
    runtime="tpu-ubuntu2204-base",
    spot=True,
    labels={labels.FLEET: "sherlock"},
    metadata={"startup-script": "#! /bin/sh\n"},
    network="projects/p-1234/global/networks/n",
    subnetwork="s",
    external_ips=False,
    service_account="trainer@p-1234.iam.gserviceaccount.com",
    scopes=("https://www.googleapis.com/auth/devstorage.read_write",),
    data_disk="text",
)


def test_everything_that_is_asked_for_is_on_the_wire(google: Google, cloud: TpuCloud) -> None:
    cloud.create(REQUEST)
    (sent,) = [body for method, _, body in google.asked if method == "CreateNode"]
    assert sent["networkConfig"] == {"network": REQUEST.network, "subnetwork": "s"}  # false is left out
    assert sent["serviceAccount"] == {"email": REQUEST.service_account, "scope": list(REQUEST.scopes)}
    assert sent["schedulingConfig"] == {"spot": True}
    disk = f"projects/p-1234/zones/{ZONE}/disks/text"
    assert sent["dataDisks"] == [{"sourceDisk": disk, "mode": 2}]  # several hosts: they can only read it
    assert (sent["labels"], sent["metadata"]) == (dict(REQUEST.labels), dict(REQUEST.metadata))


def test_a_plain_wish_gets_the_whole_scope_and_an_external_address(google: Google, cloud: TpuCloud) -> None:
    cloud.create(NodeRequest("tpu-0", ZONE, "v2-8", "tpu-ubuntu2204-base", False, {labels.FLEET: "sherlock"}, {}))
    (sent,) = [body for method, _, body in google.asked if method == "CreateNode"]
    assert sent["networkConfig"] == {"enableExternalIps": True}
    assert sent["serviceAccount"] == {"scope": list(wire.SCOPES)}
    assert "dataDisks" not in sent


def test_internal_addresses_are_asked_for_by_an_empty_network_not_by_none(google: Google, cloud: TpuCloud) -> None:
    cloud.create(dataclasses.replace(REQUEST, network=None, subnetwork=None))
    (sent,) = [body for method, _, body in google.asked if method == "CreateNode"]
    assert sent["networkConfig"] == {}


def test_a_disk_of_one_host_can_be_written(google: Google, cloud: TpuCloud) -> None:
    cloud.create(dataclasses.replace(REQUEST, accelerator="v2-8", data_disk="projects/p/zones/z/disks/d"))
    (sent,) = [body for method, _, body in google.asked if method == "CreateNode"]
    assert sent["dataDisks"] == [{"sourceDisk": "projects/p/zones/z/disks/d", "mode": 1}]


def test_a_node_is_read_whole(google: Google, cloud: TpuCloud) -> None:
    google.nodes[f"{PARENT}/nodes/tpu-0"] = {
        "name": f"{PARENT}/nodes/tpu-0",
        "acceleratorType": "v2-8",
        "state": "READY",
        "health": "UNHEALTHY_MAINTENANCE",
        "id": "42",
        "labels": {labels.FLEET: "sherlock"},
        "metadata": {"ssh-keys": "k"},
        "createTime": "2026-11-21T07:00:00Z",
        "schedulingConfig": {"preemptible": True},
        "queuedResource": f"{PARENT}/queuedResources/tpu-q",
        "networkEndpoints": [
            {"ipAddress": "10.0.0.1", "accessConfig": {"externalIp": "34.1.2.3"}},
            {"ipAddress": "10.0.0.2"},
        ],
        "aFieldOfTomorrow": {"x": 1},
    }
    (node,) = cloud.nodes(ZONE)
    assert (node.name, node.zone, node.uid, node.health) == ("tpu-0", ZONE, "42", "UNHEALTHY_MAINTENANCE")
    assert (node.addresses, node.internal) == (("34.1.2.3", "10.0.0.2"), ("10.0.0.1", "10.0.0.2"))
    assert (node.queued, node.spot, node.metadata) == ("tpu-q", True, {"ssh-keys": "k"})
    assert node.created == "2026-11-21T07:00:00.000000Z"


@pytest.mark.filterwarnings("ignore:Unrecognized")
def test_states_of_tomorrow_are_unknown(google: Google, cloud: TpuCloud) -> None:
    google.nodes["n"] = {"name": f"{PARENT}/nodes/n", "state": 99, "health": 98}
    google.queued["q"] = {"name": f"{PARENT}/queuedResources/q", "state": {"state": 99}}
    (node,) = cloud.nodes(ZONE)
    assert (node.state, node.health) == (NodeState.UNKNOWN, "UNKNOWN")
    (queued,) = cloud.queued(ZONE)
    assert (queued.state, queued.node, queued.accelerator) == (QueuedState.UNKNOWN, "", "")


def test_a_list_of_all_zones_says_each_thing_s_own_zone(google: Google, cloud: TpuCloud) -> None:
    body = b'{"nodes": [{"name": "projects/p-1234/locations/europe-west4-a/nodes/n"}]}'
    google.next("ListNodes", Answer(200, body))
    (node,) = cloud.nodes(ALL_ZONES)
    assert node.zone == "europe-west4-a"


def test_a_list_with_a_zone_that_google_did_not_reach_is_no_proof(google: Google, cloud: TpuCloud) -> None:
    google.always("ListNodes", Answer(200, b'{"unreachable": ["projects/p-1234/locations/us-east1-d"]}'))
    with pytest.raises(CloudUnreachable, match="Google does not reach us-east1-d"):
        cloud.nodes(ALL_ZONES)


def test_pages_are_read_to_the_end(google: Google, cloud: TpuCloud) -> None:
    page = '{"nodes": [{"name": "%s/nodes/%s"}]%s}'
    google.next("ListNodes", Answer(200, (page % (PARENT, "a", ', "nextPageToken": "t"')).encode()))
    google.next("ListNodes", Answer(200, (page % (PARENT, "b", "")).encode()))
    assert [node.name for node in cloud.nodes(ZONE)] == ["a", "b"]


def test_an_update_replaces_what_is_given_and_nothing_else(cloud: TpuCloud) -> None:
    cloud.create(REQUEST)
    pending = cloud.update("tpu-0", ZONE, labels={labels.FLEET: "sherlock", labels.ADOPTED: "1"})
    assert pending.finished()
    (node,) = cloud.nodes(ZONE)
    assert node.adopted
    assert node.metadata == REQUEST.metadata
    cloud.update("tpu-0", ZONE, labels={}, metadata={"a": "b"})
    (node,) = cloud.nodes(ZONE)
    assert (node.labels, node.metadata) == ({}, {"a": "b"})


def test_a_failed_queued_resource_says_why(google: Google, cloud: TpuCloud) -> None:
    cloud.create(dataclasses.replace(REQUEST, queued=True))
    why = {"error": {"code": 8, "message": "There is no more capacity"}}
    next(iter(google.queued.values()))["state"] = {"state": "FAILED", "failedData": why}
    (queued,) = cloud.queued(ZONE)
    assert (queued.name, queued.node, queued.zone, queued.accelerator) == ("tpu-0", "tpu-0", ZONE, "v3-32")
    assert (queued.state, queued.why) == (QueuedState.FAILED, "There is no more capacity")
    assert queued.labels == REQUEST.labels
