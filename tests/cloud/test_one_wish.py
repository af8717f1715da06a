"""One wish makes one node, whatever becomes of the answers; and a name that is taken says by whom."""

from __future__ import annotations

import dataclasses

import pytest

from tpufleet import labels
from tpufleet.cloud.port import NodeRequest
from tpufleet.cloud.tpu_api import TpuCloud
from tpufleet.errors import AlreadyExists, CloudUnreachable, Conflict

from .google import Cut, Google, refusal
from .said import SAID

ZONE = "us-central1-b"
FLEET = {labels.FLEET: "sherlock"}
NODE = NodeRequest("tpu-0", ZONE, "v2-8", "tpu-ubuntu2204-base", False, FLEET, {"ssh-keys": "me:ssh-ed25519 AAAA"})
QUEUED = dataclasses.replace(NODE, queued=True, spot=True, valid_s=3600)
WAYS = pytest.mark.parametrize(
    ("request_", "method"), [(NODE, "CreateNode"), (QUEUED, "CreateQueuedResource")], ids=["direct", "queued"]
)


def things(google: Google) -> list[str]:
    return [name.rpartition("/")[2] for name in (*google.nodes, *google.queued)]


@WAYS
@pytest.mark.parametrize("after", [True, False], ids=["carried out", "never arrived"])
def test_a_create_whose_answer_was_lost_makes_one_node(
    google: Google, cloud: TpuCloud, request_: NodeRequest, method: str, after: bool
) -> None:
    google.next(method, Cut(after))
    pending = cloud.create(request_)
    assert things(google) == ["tpu-0"]
    assert google.calls[method] == (1 if after else 2)
    assert (pending is None) is after


@WAYS
def test_a_create_that_is_carried_out_while_we_look_makes_one_node(
    google: Google, cloud: TpuCloud, request_: NodeRequest, method: str
) -> None:
    google.next(method, Cut(after=True))
    missing = refusal(next(said for said in SAID if said.status == "NOT_FOUND"))
    google.next("GetQueuedResource" if request_.queued else "GetNode", missing)
    cloud.create(request_)
    assert things(google) == ["tpu-0"]


@WAYS
def test_when_nobody_can_tell_whether_it_was_made_this_is_said(
    google: Google, cloud: TpuCloud, request_: NodeRequest, method: str
) -> None:
    google.always(method, Cut(after=True))
    google.always("GetNode", Cut(after=False))
    google.always("GetQueuedResource", Cut(after=False))
    with pytest.raises(CloudUnreachable) as caught:
        cloud.create(request_)
    assert "whether tpu-0 was made is not known" in (caught.value.hint or "")
    assert google.calls[method] == 1


@WAYS
def test_the_same_wish_again_is_fulfilled_already(
    google: Google, cloud: TpuCloud, request_: NodeRequest, method: str
) -> None:
    cloud.create(request_)
    google.request_ids.clear()
    assert cloud.create(request_) is None
    assert things(google) == ["tpu-0"]
    assert google.calls[method] == 2


@WAYS
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"labels": {labels.FLEET: "another"}}, "belongs to the fleet another"),
        ({"labels": {}}, "is not tpufleet's"),
        ({"accelerator": "v3-8"}, "its type is v3-8, not v2-8"),
        ({"runtime": "tpu-vm-base"}, "its runtime is tpu-vm-base, not tpu-ubuntu2204-base"),
    ],
)
def test_another_thing_of_the_name_is_a_conflict_that_says_what_differs(
    google: Google, cloud: TpuCloud, request_: NodeRequest, method: str, *, other: dict[str, object], words: str
) -> None:
    cloud.create(dataclasses.replace(request_, **other))
    google.request_ids.clear()
    with pytest.raises(AlreadyExists, match=words):
        cloud.create(request_)
    assert google.calls[method] == 2


@WAYS
def test_spot_and_on_demand_are_not_the_same(
    google: Google, cloud: TpuCloud, request_: NodeRequest, method: str
) -> None:
    cloud.create(dataclasses.replace(request_, spot=not request_.spot))
    google.request_ids.clear()
    with pytest.raises(AlreadyExists, match="its kind is"):
        cloud.create(request_)
    assert google.calls[method] == 2


def test_a_node_that_is_no_more_and_a_failed_queued_resource_are_in_the_way(google: Google, cloud: TpuCloud) -> None:
    cloud.create(NODE)
    next(iter(google.nodes.values()))["state"] = "PREEMPTED"
    with pytest.raises(AlreadyExists, match="it is PREEMPTED"):
        cloud.create(NODE)
    cloud.create(QUEUED)
    google.request_ids.clear()
    why = {"error": {"code": 8, "message": "valid_until has passed"}}
    next(iter(google.queued.values()))["state"] = {"state": "FAILED", "failedData": why}
    with pytest.raises(AlreadyExists, match=r"it is FAILED \(valid_until has passed\)"):
        cloud.create(QUEUED)


def test_a_queued_resource_of_a_name_that_was_deleted_is_made_anew(google: Google, cloud: TpuCloud) -> None:
    """Google remembers request ids longer than the resource lives."""
    for _life in range(3):
        cloud.create(QUEUED)
        assert things(google) == ["tpu-0"]
        cloud.delete_queued("tpu-0", ZONE)
        assert things(google) == []


def test_a_request_id_that_google_knows_does_not_hide_what_became_of_the_resource(
    google: Google, cloud: TpuCloud
) -> None:
    cloud.create(QUEUED)
    next(iter(google.queued.values()))["state"] = {"state": "SUSPENDED"}
    with pytest.raises(AlreadyExists, match="it is SUSPENDED"):
        cloud.create(QUEUED)


def test_the_same_wish_has_the_same_request_id_and_another_has_another(google: Google, cloud: TpuCloud) -> None:
    for request in (QUEUED, QUEUED, dataclasses.replace(QUEUED, name="tpu-1")):
        google.queued.clear()
        google.request_ids.clear()
        cloud.create(request)
    first, again, other = (query["requestId"] for method, query, _ in google.asked if method == "CreateQueuedResource")
    assert first == again != other


def test_a_queued_resource_says_what_it_is_and_how_long_it_waits(google: Google, cloud: TpuCloud) -> None:
    cloud.create(QUEUED)
    cloud.create(dataclasses.replace(QUEUED, name="tpu-1", spot=False, valid_s=None))
    spot, guaranteed = google.queued.values()
    (spec,) = spot["tpu"]["nodeSpec"]
    assert (spec["nodeId"], spec["parent"]) == ("tpu-0", f"projects/p-1234/locations/{ZONE}")
    assert (spec["node"]["labels"], spec["node"]["metadata"]) == (dict(QUEUED.labels), dict(QUEUED.metadata))
    assert spot["spot"] == {}
    assert spot["queueingPolicy"] == {"validUntilDuration": "3600s"}
    assert guaranteed["guaranteed"] == {}
    assert "queueingPolicy" not in guaranteed


@pytest.mark.parametrize("after", [True, False])
def test_a_delete_whose_answer_was_lost_deletes(google: Google, cloud: TpuCloud, after: bool) -> None:
    cloud.create(NODE)
    cloud.create(QUEUED)
    google.next("DeleteNode", Cut(after))
    google.next("DeleteQueuedResource", Cut(after))
    cloud.delete("tpu-0", ZONE)
    cloud.delete_queued("tpu-0", ZONE)
    assert things(google) == []
    assert cloud.delete("tpu-0", ZONE) is None
    assert cloud.delete_queued("tpu-0", ZONE) is None
    assert next(query["force"] for method, query, _ in google.asked if method == "DeleteQueuedResource") == ["true"]


def test_deleting_what_is_being_deleted_is_done_already(google: Google, cloud: TpuCloud) -> None:
    cloud.create(NODE)
    busy = next(said for said in SAID if "not supported while" in said.text)
    google.always("DeleteNode", refusal(busy))
    with pytest.raises(Conflict):
        cloud.delete("tpu-0", ZONE)
    next(iter(google.nodes.values()))["state"] = "DELETING"
    assert cloud.delete("tpu-0", ZONE) is None


def test_a_start_whose_answer_was_lost_starts_once(google: Google, cloud: TpuCloud) -> None:
    cloud.create(NODE)
    next(iter(google.nodes.values()))["state"] = "STOPPED"
    google.next("StartNode", Cut(after=True))
    assert cloud.start("tpu-0", ZONE) is None
    assert google.calls["StartNode"] == 2
