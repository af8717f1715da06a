"""The adapter over Google's client, against the rehearsal cloud: the same calls that Google gets."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tpufleet import labels
from tpufleet.cloud import tpu_api
from tpufleet.cloud.port import ALL_ZONES, NodeRequest, Pending
from tpufleet.cloud.retry import Patience
from tpufleet.cloud.tpu_api import Access, TpuCloud
from tpufleet.cloud.transport import Anonymous, Transport
from tpufleet.emulator import launch
from tpufleet.emulator.remote import Faults, Remote
from tpufleet.errors import AlreadyExists, CloudUnreachable, NotOffered, ZoneNotGranted
from tpufleet.model import NodeState, QueuedState
from tpufleet.ssh.fanout import gather

from .conftest import Steps

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


def until(condition: Callable[[], Any]) -> Any:
    """The first true value of `condition`, which makes a real call, so no pause is needed."""
    deadline = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < deadline
    return value


def ended(pending: Pending | None) -> None:
    if pending:
        until(pending.finished)


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


def test_an_endpoint_where_nobody_answers_is_unreachable(steps: Steps) -> None:
    def nowhere() -> Access:
        return Access(Transport(Anonymous(), "http://127.0.0.1:1", direct=True))

    cloud = TpuCloud("rehearsal", nowhere, ssh_port=22, patience=Patience(5, 5), at=steps.time)
    with pytest.raises(CloudUnreachable, match="does not answer"):
        cloud.nodes(ZONE)
    assert 1 < steps.now < 5


def test_a_queued_resource_makes_its_node_and_takes_it_along(cloud: TpuCloud) -> None:
    wish = dataclasses.replace(REQUEST, name="tpu-q", queued=True, valid_s=600)
    for _life in range(2):  # the second time Google still knows the first one's request id
        ended(cloud.create(wish))
        ended(cloud.create(wish))
        (queued,) = until(lambda: [one for one in cloud.queued(ALL_ZONES) if one.state is QueuedState.ACTIVE])
        assert (queued.name, queued.node, queued.zone) == ("tpu-q", "tpu-q", ZONE)
        assert queued.labels == dict(REQUEST.labels)
        (node,) = cloud.nodes(ALL_ZONES)
        assert (node.queued, node.spot, node.zone) == ("tpu-q", True, ZONE)
        ended(cloud.delete_queued("tpu-q", ZONE))
        until(lambda: not cloud.queued(ZONE) and not cloud.nodes(ZONE))
    assert cloud.delete_queued("tpu-q", ZONE) is None


def test_labels_and_metadata_are_replaced_alone(cloud: TpuCloud) -> None:
    ended(cloud.create(REQUEST))
    ended(cloud.update("tpu-0", ZONE, labels={**REQUEST.labels, labels.ADOPTED: "1"}))
    (node,) = cloud.nodes(ZONE)
    assert (node.adopted, node.metadata) == (True, {"note": "x"})
    assert node.internal == node.addresses


def test_a_create_whose_answer_the_rehearsal_cloud_loses_makes_one_node(
    cloud: TpuCloud, running: launch.Running
) -> None:
    remote = Remote(running.url)
    Faults(remote).lose_answer(method="CreateNode")
    ended(cloud.create(REQUEST))
    assert [node.name for node in cloud.nodes(ZONE)] == ["tpu-0"]
    assert remote.book()["calls"]["CreateNode"] >= 1


def test_many_calls_side_by_side_say_nothing_on_the_side(
    cloud: TpuCloud, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    outcomes = gather(range(60), lambda _: cloud.nodes(ZONE), limit=48)
    assert all(outcome.error is None for outcome in outcomes)
    assert not [record for record in caplog.records if record.name.startswith("urllib3")]
    assert not list(recwarn)


def test_a_proxy_of_the_person_s_is_no_way_to_the_rehearsal_cloud(
    running: launch.Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    cloud = tpu_api.rehearsal("rehearsal", running.url, running.ssh_port)
    assert cloud.nodes("europe-west4-a") == ()
    cloud.close()
