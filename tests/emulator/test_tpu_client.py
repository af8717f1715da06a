"""Google's own client, unpatched, against the emulator's API."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.api_core.future.polling import DEFAULT_POLLING
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2

from .rig import PARENT, ZONE, Rig, until

FAST = DEFAULT_POLLING.with_delay(initial=0.02, maximum=0.1).with_timeout(20)


def test_a_created_node_is_the_result_of_its_operation(shared: Rig, name: str) -> None:
    operation = shared.client.create_node(
        parent=PARENT, node=shared.wanted("v2-8", labels={"fleet": "f"}), node_id=name, timeout=10
    )
    node = operation.result(polling=FAST)

    assert operation.operation.name.startswith(f"{PARENT}/operations/")
    assert operation.metadata.verb == "create"
    assert operation.metadata.target == node.name == f"{PARENT}/nodes/{name}"
    assert node.state == tpu_v2.Node.State.READY
    assert node.health == tpu_v2.Node.Health.HEALTHY
    assert node.api_version == tpu_v2.Node.ApiVersion.V2
    assert node.accelerator_config.type_ == tpu_v2.AcceleratorConfig.Type.V2
    assert node.accelerator_config.topology == "2x2"
    assert dict(node.labels) == {"fleet": "f"}
    assert node.id > 0
    assert shared.client.get_node(name=node.name, timeout=10) == node


def test_a_type_of_several_hosts_has_that_many_endpoints_in_the_order_of_its_workers(shared: Rig, name: str) -> None:
    node = shared.create(name, "v3-32", parent="projects/p/locations/europe-west4-a")
    addresses = [end.access_config.external_ip for end in node.network_endpoints]
    assert [address.rpartition(".")[2] for address in addresses] == ["1", "2", "3", "4"]
    assert len({address.rpartition(".")[0] for address in addresses}) == 1


def test_an_accelerator_config_names_the_type_as_well(shared: Rig, name: str) -> None:
    config = tpu_v2.AcceleratorConfig(type_=tpu_v2.AcceleratorConfig.Type.V2, topology="2x2")
    assert shared.create(name, "", accelerator_config=config).accelerator_type == "v2-8"


def test_metadata_and_labels_can_be_updated(shared: Rig, name: str) -> None:
    node = shared.create(name, labels={"a": "1"})
    wanted = tpu_v2.Node(name=node.name, labels={"b": "2"}, metadata={"k": "v"}, description="not in the mask")
    mask = field_mask_pb2.FieldMask(paths=["labels", "metadata"])
    updated = shared.client.update_node(node=wanted, update_mask=mask, timeout=10).result(polling=FAST)
    assert (dict(updated.labels), dict(updated.metadata), updated.description) == ({"b": "2"}, {"k": "v"}, "")


def test_a_deleted_node_is_gone(shared: Rig, name: str) -> None:
    node = shared.create(name)
    shared.client.delete_node(name=node.name, timeout=10).result(polling=FAST)
    with pytest.raises(exceptions.NotFound, match=f"Resource '{node.name}' was not found"):
        shared.client.get_node(name=node.name, timeout=10)
    assert not shared.root(f"{name}-w0").parent.exists()


def test_a_stopped_node_starts_again(shared: Rig, name: str) -> None:
    node = shared.create(name)
    stopped = shared.client.stop_node(tpu_v2.StopNodeRequest(name=node.name), timeout=10).result(polling=FAST)
    assert stopped.state == tpu_v2.Node.State.STOPPED
    started = shared.client.start_node(tpu_v2.StartNodeRequest(name=node.name), timeout=10).result(polling=FAST)
    assert started.state == tpu_v2.Node.State.READY


def test_a_taken_name_is_a_conflict(shared: Rig, name: str) -> None:
    shared.create(name)
    with pytest.raises(exceptions.Conflict, match="already exists"):
        shared.client.create_node(parent=PARENT, node=shared.wanted(), node_id=name, timeout=10)


@pytest.mark.parametrize(
    ("zone", "accelerator", "says"),
    [
        ("us-central1-b", "v3-32", "the accelerator v3-32 was not found in zone us-central1-b"),
        ("us-central1-b", "v2-9", "the accelerator v2-9 was not found in zone us-central1-b"),
        ("us-central1-b", "", "the accelerator  was not found"),
    ],
)
def test_a_type_that_the_zone_lacks_is_refused(shared: Rig, zone: str, accelerator: str, says: str) -> None:
    node = shared.wanted(accelerator)
    with pytest.raises(exceptions.BadRequest, match=says):
        shared.client.create_node(parent=f"projects/p/locations/{zone}", node=node, node_id="never", timeout=10)


def test_an_unknown_zone_is_refused(shared: Rig) -> None:
    with pytest.raises(exceptions.Forbidden, match="is not found or access is unauthorized"):
        list(shared.client.list_nodes(parent="projects/p/locations/mars-north1-a", timeout=10))


@pytest.mark.parametrize("node_id", ["", "Tpu", "-a", "a/b", "a" * 64, "a_b", "a-"])
def test_a_bad_node_id_is_refused(shared: Rig, node_id: str) -> None:
    with pytest.raises(exceptions.ClientError):
        shared.client.create_node(parent=PARENT, node=shared.wanted(), node_id=node_id, timeout=10)


def test_lists_come_in_pages(shared: Rig) -> None:
    parent = "projects/paged/locations/us-central1-c"
    for number in range(3):
        shared.create(f"page-{number}", parent=parent)
    pages = shared.client.list_nodes(request={"parent": parent, "page_size": 2}, timeout=10).pages
    assert [len(page.nodes) for page in pages] == [2, 1]
    everywhere = shared.client.list_nodes(parent="projects/paged/locations/-", timeout=10)
    assert len(list(everywhere)) == 3


def test_nodes_of_one_name_in_two_zones_have_hosts_of_their_own(shared: Rig, name: str) -> None:
    here = shared.create(name)
    there = shared.create(name, parent="projects/p/locations/us-central1-c")
    assert here.network_endpoints[0].ip_address != there.network_endpoints[0].ip_address
    assert shared.root(f"{name}.us-central1-c-w0").exists()


def test_guest_attributes_hold_each_workers_host_key(shared: Rig, name: str) -> None:
    node = shared.create(name, "v3-32", parent="projects/p/locations/europe-west4-a")

    def keys(query: str, workers: list[str]) -> list[str]:
        request = tpu_v2.GetGuestAttributesRequest(name=node.name, query_path=query, worker_ids=workers)
        answer = shared.client.get_guest_attributes(request, timeout=10)
        return [item.value for one in answer.guest_attributes for item in one.query_value.items]

    everyones = keys("hostkeys/", [""])
    assert len(set(everyones)) == 4
    assert all(key.startswith("AAAAC3NzaC1lZDI1NTE5") for key in everyones)
    assert keys("", []) == everyones
    assert keys("hostkeys/ssh-ed25519", ["2", "0"]) == [everyones[2], everyones[0]]
    assert keys("other/", ["0"]) == []
    with pytest.raises(exceptions.BadRequest, match="worker id '4' is invalid"):
        keys("hostkeys/", ["4"])


def test_types_versions_locations_and_queued_resources_can_be_listed(shared: Rig) -> None:
    types = {one.type_ for one in shared.client.list_accelerator_types(parent=PARENT, timeout=10)}
    assert {"v2-8", "v3-8", "v6e-8"} <= types
    assert "v4-8" not in types
    versions = {one.version for one in shared.client.list_runtime_versions(parent=PARENT, timeout=10)}
    assert {"tpu-ubuntu2204-base", "v2-alpha-tpuv6e"} <= versions
    nobody_s = "projects/nobody-s/locations/us-central1-b"
    assert list(shared.client.list_queued_resources(parent=nobody_s, timeout=10)) == []
    locations = shared.client.list_locations(request={"name": "projects/p"}).locations
    assert "us-central1-b" in {location.location_id for location in locations}


def test_a_node_passes_through_creating_and_can_be_deleted_there(shared: Rig, name: str) -> None:
    shared.http("PUT", "/emulator/settings", {"createSeconds": 3600})
    try:
        creating = shared.client.create_node(parent=PARENT, node=shared.wanted(), node_id=name, timeout=10)
        assert shared.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10).state.name == "CREATING"
        assert not creating.done()
        shared.delete(name)
        with pytest.raises(exceptions.GoogleAPICallError, match="cancelled"):
            creating.result(polling=FAST)
    finally:
        shared.http("PUT", "/emulator/settings", {"createSeconds": 0})


def test_a_preempted_node_can_be_deleted_only(shared: Rig, name: str) -> None:
    node = shared.create(name)
    assert shared.http("POST", f"/emulator/faults/preempt/{name}")[0] == 200
    assert shared.client.get_node(name=node.name, timeout=10).state.name == "PREEMPTED"
    wanted = tpu_v2.Node(name=node.name, labels={"b": "2"})
    with pytest.raises(exceptions.BadRequest, match="update is not supported while in state PREEMPTED"):
        shared.client.update_node(node=wanted, update_mask={"paths": ["labels"]}, timeout=10)
    shared.delete(name)


def test_the_book_counts_calls_and_bills_until_the_delete(rig: Rig) -> None:
    rig.create("billed")
    rig.delete("billed")
    until(lambda: rig.http("GET", "/emulator/book")[1]["nodes"][0]["deleted"], "the delete is booked")
    book = rig.http("GET", "/emulator/book")[1]
    assert book["calls"]["CreateNode"] == book["calls"]["DeleteNode"] == 1
    assert [node["name"] for node in book["nodes"]] == [f"{PARENT}/nodes/billed"]
    billed = book["nodes"][0]["nodeSeconds"]
    assert 0 < billed < 20
    assert rig.http("GET", "/emulator/book")[1]["nodes"][0]["nodeSeconds"] == billed


def test_operations_are_looked_at_listed_cancelled_and_forgotten(shared: Rig, name: str) -> None:
    parent = f"projects/{name}-p/locations/{ZONE}"
    done = shared.client.create_node(parent=parent, node=shared.wanted(), node_id=name, timeout=10)
    done.result(polling=FAST)
    operation = done.operation.name
    assert shared.client.get_operation({"name": operation}, timeout=10).done
    assert [one.name for one in shared.client.list_operations({"name": parent}, timeout=10).operations] == [operation]
    shared.client.cancel_operation({"name": operation}, timeout=10)
    shared.client.delete_operation({"name": operation}, timeout=10)
    with pytest.raises(exceptions.NotFound):
        shared.client.get_operation({"name": operation}, timeout=10)


def test_a_node_has_googles_defaults_and_what_was_asked_for(shared: Rig, name: str) -> None:
    disk = tpu_v2.AttachedDisk(
        source_disk=f"projects/p/zones/{ZONE}/disks/d", mode=tpu_v2.AttachedDisk.DiskMode.READ_ONLY
    )
    node = shared.create(
        name,
        network_config=tpu_v2.NetworkConfig(subnetwork="s"),
        scheduling_config=tpu_v2.SchedulingConfig(spot=True),
        shielded_instance_config=tpu_v2.ShieldedInstanceConfig(enable_secure_boot=True),
        data_disks=[disk],
        tags=["t"],
    )
    assert node.network_config.network == "projects/p/global/networks/default"
    assert node.network_config.subnetwork == "projects/p/regions/us-central1/subnetworks/s"
    assert not node.network_endpoints[0].access_config.external_ip  # external addresses were not asked for
    assert node.service_account.email.endswith("-compute@developer.gserviceaccount.com")
    assert "https://www.googleapis.com/auth/devstorage.read_only" in node.service_account.scope
    assert (list(node.data_disks), list(node.tags)) == ([disk], ["t"])
    assert node.shielded_instance_config.enable_secure_boot
    assert not node.multislice_node


def test_a_pod_can_not_be_stopped(shared: Rig, name: str) -> None:
    node = shared.create(name, "v3-32", parent="projects/p/locations/europe-west4-a")
    with pytest.raises(exceptions.BadRequest, match="stop is not supported"):
        shared.client.stop_node(tpu_v2.StopNodeRequest(name=node.name), timeout=10)


def test_a_simulated_maintenance_is_over_when_the_node_was_stopped(shared: Rig, name: str) -> None:
    node = shared.create(name)
    body = {"workerIds": ["0"]}  # v2alpha1 only, whose Python client has no REST transport
    status, operation = shared.http("POST", f"/v2alpha1/{node.name}:simulateMaintenanceEvent", body)
    assert (status, operation["response"]["upcomingMaintenance"]["maintenanceStatus"]) == (200, "ONGOING")
    assert operation["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2alpha1.Node"
    seen = shared.client.get_node(name=node.name, timeout=10)
    assert seen.health == tpu_v2.Node.Health.UNHEALTHY_MAINTENANCE
    shared.client.stop_node(tpu_v2.StopNodeRequest(name=node.name), timeout=10).result(polling=FAST)
    started = shared.client.start_node(tpu_v2.StartNodeRequest(name=node.name), timeout=10).result(polling=FAST)
    assert started.health == tpu_v2.Node.Health.HEALTHY
    assert shared.http("POST", f"/v2/{node.name}:simulateMaintenanceEvent", body)[0] == 404
