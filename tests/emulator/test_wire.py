"""The API's JSON where Google's client doesn't look: errors, unknown fields, shapes; and pure parts of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tpu_v2, tpu_v2alpha1
from google.protobuf.descriptor import Descriptor

from tpufleet.emulator import schema
from tpufleet.emulator.accounts import users
from tpufleet.emulator.nodes import disks, new_resource
from tpufleet.emulator.peers import owner_of
from tpufleet.emulator.wire import ApiError

from .rig import PARENT, RUNTIME, Rig

DISK = "projects/p/zones/us-central1-b/disks/d"
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_an_unknown_field_is_refused_in_googles_words(shared: Rig) -> None:
    body = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME, "acceleratorTyp": "v2-8"}
    status, answer = shared.http("POST", f"/v2/{PARENT}/nodes?nodeId=never", body)
    text = "Invalid JSON payload received. Unknown name \"acceleratorTyp\" at 'node': Cannot find field."
    assert status == 400
    assert answer["error"]["status"] == "INVALID_ARGUMENT"
    assert answer["error"]["message"] == text
    assert answer["error"]["details"][0]["fieldViolations"] == [{"field": "node", "description": text}]


@pytest.mark.parametrize(
    "body",
    [
        {"labels": {"a": 1}},
        {"labels": []},
        {"tags": "a"},
        {"networkConfig": {"enableExternalIps": "yes"}},
        {"networkEndpoints": [{"prt": 1}]},
        {"acceleratorType": 8},
        [],
    ],
)
def test_a_value_of_the_wrong_type_is_refused(body: Any) -> None:
    with pytest.raises(ApiError) as refused:
        schema.check(body, schema.NODE, "node")
    assert refused.value.status == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("message", "table"),
    [
        (tpu_v2.Node, schema.NODE),
        (tpu_v2.QueuedResource, schema.QUEUED),
        (tpu_v2.GetGuestAttributesRequest, schema.GUEST_ATTRIBUTES | {"name": str}),
        (tpu_v2alpha1.SimulateMaintenanceEventRequest, schema.SIMULATE_MAINTENANCE | {"name": str}),
    ],
)
def test_the_tables_of_fields_are_the_real_clients(message: Any, table: Any) -> None:
    assert _fields(message.pb(message()).DESCRIPTOR) == _names(table)


@pytest.mark.parametrize(
    ("message", "table"),
    [(tpu_v2alpha1.Node, schema.ALPHA_NODE), (tpu_v2alpha1.QueuedResource, schema.ALPHA_QUEUED)],
)
def test_the_alpha_tables_have_all_that_the_real_client_has(message: Any, table: Any) -> None:
    assert _fields(message.pb(message()).DESCRIPTOR) <= _names(table)  # gcloud has more, from a newer discovery


def _fields(message: Descriptor, at: str = "") -> set[str]:
    found: set[str] = set()
    for field in message.fields:
        found.add(at + field.json_name)
        inner = field.message_type
        ours = inner and inner.full_name.startswith(("google.cloud.tpu", "google.type.Interval"))
        if ours and not inner.GetOptions().map_entry:
            found |= _fields(inner, f"{at}{field.json_name}.")
    return found


def _names(table: Any, at: str = "") -> set[str]:
    found: set[str] = set()
    for name, kind in table.items():
        found.add(at + name)
        inner = kind[0] if isinstance(kind, list) else kind
        if isinstance(inner, dict) and str not in inner:
            found |= _names(inner, f"{at}{name}.")
    return found


def test_text_that_is_no_json_is_refused(shared: Rig) -> None:
    status, answer = shared.http("POST", f"/v2/{PARENT}/nodes/x:getGuestAttributes", "a string")
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_an_unknown_path_is_not_found_in_the_envelope(shared: Rig) -> None:
    status, answer = shared.http("GET", "/v2/no/such/thing")
    assert (status, answer["error"]["code"], answer["error"]["status"]) == (404, 404, "NOT_FOUND")


def test_an_unknown_parameter_is_refused_in_googles_words(shared: Rig) -> None:
    status, answer = shared.http("GET", f"/v2/{PARENT}/nodes?pagesize=1&$alt=json;enum-encoding=int&prettyPrint=false")
    assert status == 400
    assert 'Unknown name "pagesize": Cannot bind query parameter.' in answer["error"]["message"]


def test_only_a_flag_may_be_a_flag(shared: Rig) -> None:
    status, answer = shared.http("DELETE", f"/v2/{PARENT}/queuedResources/q?force=perhaps")
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert shared.http("DELETE", f"/v2/{PARENT}/queuedResources/q?force=True")[0] == 404


def test_a_token_of_no_node_is_refused(shared: Rig) -> None:
    headers = [("Authorization", "Bearer rehearsal-123")]
    assert shared.http("GET", f"/v2/{PARENT}/nodes", headers=headers)[1]["error"]["status"] == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"labels": {"Fleet": "f"}}, "invalid label 'Fleet'"),
        ({"tags": ["No"]}, "invalid tag 'No'"),
        ({"dataDisks": [{"sourceDisk": "d"}]}, "is not a disk in zone"),
        ({"dataDisks": [{"sourceDisk": "projects/p/zones/us-east1-d/disks/d"}]}, "is not a disk in zone"),
        ({"dataDisks": [{"sourceDisk": DISK, "mode": "READ"}]}, "invalid mode 'READ'"),
        ({"networkConfig": {"network": "n"}, "networkConfigs": [{"network": "m"}]}, "only one of network_config"),
    ],
)
def test_a_node_that_can_not_be_made_is_refused(fields: Any, says: str) -> None:
    wanted = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME} | fields
    with pytest.raises(ApiError, match=says) as refused:
        new_resource("p", "us-central1-b", wanted)
    assert refused.value.status == "INVALID_ARGUMENT"


def test_a_disk_is_written_by_one_worker_only() -> None:
    assert disks([{"sourceDisk": DISK, "mode": 2}], "us-central1-b", 4)[0]["mode"] == "READ_ONLY"
    with pytest.raises(ApiError, match="in mode READ_ONLY only"):
        disks([{"sourceDisk": DISK, "mode": 1}], "us-central1-b", 4)


def test_a_node_in_several_networks_has_its_workers_endpoints_together(shared: Rig, name: str) -> None:
    networks = [{"network": "a", "enableExternalIps": True}, {"network": "b"}]
    body = {"acceleratorType": "v2-8", "runtimeVersion": RUNTIME, "networkConfigs": networks}
    assert shared.http("POST", f"/v2/{PARENT}/nodes?nodeId={name}", body)[0] == 200
    shared.await_state(f"{PARENT}/nodes/{name}", "READY")
    node = shared.http("GET", f"/v2/{PARENT}/nodes/{name}")[1]
    assert [one["network"] for one in node["networkConfigs"]] == [
        "projects/p/global/networks/a",
        "projects/p/global/networks/b",
    ]
    first, second = node["networkEndpoints"]
    assert first["accessConfig"] == {"externalIp": first["ipAddress"]}
    assert "accessConfig" not in second


def test_identifiers_are_strings_and_times_end_in_z(shared: Rig, name: str) -> None:
    shared.create(name)
    node = shared.http("GET", f"/v2/{PARENT}/nodes/{name}")[1]
    assert isinstance(node["id"], str)
    assert node["state"] == "READY"
    assert node["createTime"].endswith("Z")


def test_a_web_page_is_not_answered(shared: Rig) -> None:
    origin = [("Origin", "http://evil.example")]
    assert shared.http("GET", "/emulator/info", headers=origin)[0] == 403
    assert shared.http("GET", "/emulator/info")[0] == 200


def test_another_user_of_the_machine_is_recognised(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    table.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
        "   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1007        0 2 1\n"
    )
    assert owner_of(table, ("127.0.0.1", 50000), ("127.0.0.1", 8080)) == 1007
    assert owner_of(table, ("127.0.0.1", 50001), ("127.0.0.1", 8080)) is None


def test_keys_are_read_as_googles_guest_agent_reads_them() -> None:
    lines = [
        "ada:ssh-ed25519 QUJD ada@home",
        "ada:ssh-rsa REVG",
        'bob:ssh-ed25519 QUJD google-ssh {"userName":"bob","expireOn":"2026-12-01T00:00:00+0000"}',
        'bob:ssh-ed25519 REVG google-ssh {"userName":"bob","expireOn":"2026-01-01T00:00:00+0000"}',
        "bob:ssh-ed25519 R0hJ google-ssh {broken",
        "../x:ssh-ed25519 QUJD",
        "carl:ssh-ed25519 !!!",
        "carl:",
        "",
    ]
    metadata = {"ssh-keys": "\n".join(lines)}
    project = {"ssh-keys": "dora:ssh-ed25519 QUJD"}
    assert users(metadata, project, NOW)["dora"] == {b"ABC"}
    assert "dora" not in users(metadata | {"block-project-ssh-keys": "TRUE"}, project, NOW)
    assert users(metadata, {}, NOW) == {"ada": {b"ABC", b"DEF"}, "bob": {b"ABC"}}
