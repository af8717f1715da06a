"""The adapter over Google's client, against the rehearsal cloud: the same calls that Google gets."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import pytest

from tpufleet import labels
from tpufleet.cloud import tpu_api
from tpufleet.cloud.port import NodeRequest, Pending
from tpufleet.cloud.tpu_api import TpuCloud
from tpufleet.emulator import launch
from tpufleet.errors import AlreadyExists, CloudUnreachable, NotOffered, ZoneNotGranted
from tpufleet.model import NodeState

ZONE = "us-central1-b"
REQUEST = NodeRequest("tpu-0", ZONE, "v2-8", "tpu-ubuntu2204-base", True, {labels.FLEET: "sherlock"}, {"note": "x"})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[launch.Running]:
    directory = tmp_path_factory.mktemp("cloud") / "emulator"
    yield launch.start(directory, create_seconds=0)
    launch.stop(directory)


@pytest.fixture
def cloud(running: launch.Running) -> Iterator[TpuCloud]:
    cloud = tpu_api.rehearsal("rehearsal", running.url, running.ssh_port)
    yield cloud
    for node in cloud.nodes(ZONE):
        ended(cloud.delete(node.name, ZONE))
    cloud.close()


def ended(pending: Pending | None) -> None:
    """Until the operation has ended: asking is a real call, so no pause is needed."""
    deadline = time.monotonic() + 20
    while pending and not pending.finished():
        assert time.monotonic() < deadline


def test_a_node_is_made_as_it_was_asked_for(cloud: TpuCloud) -> None:
    ended(cloud.create(REQUEST))
    (node,) = cloud.nodes(ZONE)
    assert (node.name, node.accelerator, node.state, node.spot) == ("tpu-0", "v2-8", NodeState.READY, True)
    assert node.labels[labels.FLEET] == "sherlock"
    assert node.addresses[0].startswith("127.77.")
    assert node.created
    (key,) = cloud.host_keys("tpu-0", ZONE)
    assert key
    assert key.startswith("ssh-ed25519 AAAA")


def test_our_own_node_of_the_same_kind_is_no_conflict(cloud: TpuCloud) -> None:
    ended(cloud.create(REQUEST))
    assert cloud.create(REQUEST) is None


@pytest.mark.parametrize(
    ("other", "words"),
    [({"accelerator": "v3-8"}, "v2-8, not v3-8"), ({"labels": {labels.FLEET: "another"}}, "the fleet sherlock")],
)
def test_another_s_node_of_the_same_name_is_a_conflict(cloud: TpuCloud, other: dict[str, object], words: str) -> None:
    ended(cloud.create(REQUEST))
    with pytest.raises(AlreadyExists, match=f"tpu-0: there is one of this name already.*{words}"):
        cloud.create(dataclasses.replace(REQUEST, **other))


def test_deleting_what_is_not_there_is_done_already(cloud: TpuCloud) -> None:
    assert cloud.delete("tpu-9", ZONE) is None


def test_a_type_that_the_zone_has_not_and_a_zone_that_was_not_granted_are_told_apart(cloud: TpuCloud) -> None:
    with pytest.raises(NotOffered, match="was not found in zone"):
        cloud.create(dataclasses.replace(REQUEST, accelerator="v4-8"))
    with pytest.raises(ZoneNotGranted, match="not found or access is unauthorized"):
        cloud.nodes("mars-north1-a")


def test_an_endpoint_where_nobody_answers_is_unreachable(running: launch.Running) -> None:
    assert running  # its port is taken, so the one below is another's or nobody's
    with pytest.raises(CloudUnreachable, match="does not answer"):
        tpu_api.rehearsal("rehearsal", "http://127.0.0.1:1", 22).nodes(ZONE)
