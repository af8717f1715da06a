"""What tpufleet takes for granted of the Cloud TPU API, of its VMs, and of what both do over time.

Each test runs on the rehearsal cloud; with TPUFLEET_LIVE=1 also on Google Cloud, where one node serves most of them.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.conftest import Place
from tpufleet import labels
from tpufleet.accelerators import lookup
from tpufleet.cloud.port import ALL_ZONES, NodeRequest, Pending
from tpufleet.errors import AlreadyExists, NotOffered, ZoneNotGranted
from tpufleet.model import OPERATOR, Host, Node, NodeState, QueuedState, Spec, SshSpec
from tpufleet.names import FleetName, HostName
from tpufleet.paths import LocalPaths
from tpufleet.ssh.access import access_to
from tpufleet.ssh.client import ParamikoDialer
from tpufleet.ssh.keys import ensure_key
from tpufleet.ssh.port import Connection
from tpufleet.ssh.trust import Trust

FLEET = f"contract-{uuid.uuid4().hex[:8]}"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def wish(place: Place, name: str, key: Path, **more: object) -> NodeRequest:
    request = NodeRequest(
        name=f"{FLEET}-{name}",
        zone=place.zone,
        accelerator=place.accelerator,
        runtime=lookup(place.accelerator).runtime,
        spot=False,
        labels={labels.FLEET: FLEET},
        metadata={"ssh-keys": f"{OPERATOR}:{ensure_key(key)}", "enable-guest-attributes": "TRUE"},
        scopes=(SCOPE,),
    )
    return dataclasses.replace(request, **more)  # pyright: ignore[reportArgumentType] - the tests' own words


def found(place: Place, name: str) -> Node | None:
    return next((node for node in place.cloud.nodes(place.zone) if node.name == name), None)


def ready(place: Place, request: NodeRequest, pending: Pending | None) -> Node:
    """The node, READY; raises what the operation says where it failed."""

    def look() -> Node | None:
        node = found(place, request.name)
        if node is None and pending:
            pending.finished()
        return node if node and node.state is NodeState.READY else None

    return place.until(look, f"{request.name} is READY")


def gone(place: Place, name: str) -> None:
    place.until(lambda: found(place, name) is None, f"{name} is absent")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> LocalPaths:
    paths = LocalPaths(tmp_path_factory.mktemp("home") / "tpufleet.yaml", FLEET)
    paths.ensure_state()
    return paths


@pytest.fixture(scope="module")
def request_(place: Place, home: LocalPaths) -> NodeRequest:
    return wish(place, "one", home.key)


@pytest.fixture(scope="module")
def node(place: Place, request_: NodeRequest) -> Iterator[Node]:
    """One node for all tests that leave it as it is."""
    try:
        yield ready(place, request_, place.cloud.create(request_))
    finally:
        place.cloud.delete(request_.name, place.zone)
        gone(place, request_.name)


def entered(place: Place, home: LocalPaths, node: Node) -> tuple[ParamikoDialer, Connection]:
    """A shell on worker 0, trusting the host key that the guest attributes say."""
    keys = place.until(
        lambda: [key for key in place.cloud.host_keys(node.name, place.zone) if key], "the guest attributes"
    )
    trust = Trust(home.pins)
    host = Host(HostName("one-w0"), node.name, node.zone, 0, node.addresses[0], place.cloud.ssh_port, f"{node.uid}-w0")
    trust.pin(host.identity, keys[0])
    dialer = ParamikoDialer(access_to(Spec(FleetName("contract"), ssh=SshSpec()), home), trust)

    def connect() -> Connection | None:
        from tpufleet.errors import AccessRefused, Unreachable

        try:
            return dialer.connect(host)
        except (Unreachable, AccessRefused):  # it boots, or its guest agent has not made the account yet
            return None

    return dialer, place.until(connect, "SSH")


def test_a_node_is_as_it_was_asked_for(place: Place, node: Node, request_: NodeRequest) -> None:
    kind = lookup(place.accelerator)
    assert (node.accelerator, node.zone, node.spot) == (place.accelerator, place.zone, False)
    assert labels.fleet_of(node.labels) == FLEET
    assert len(node.addresses) == len(node.internal) == kind.hosts
    assert node.created
    assert node.uid
    assert node.metadata["ssh-keys"] == request_.metadata["ssh-keys"]


def test_asking_again_is_no_second_node_and_another_s_name_is_a_conflict(
    place: Place, node: Node, request_: NodeRequest
) -> None:
    assert place.cloud.create(request_) is None
    theirs = dataclasses.replace(request_, labels={labels.FLEET: "somebody-else"})
    with pytest.raises(AlreadyExists):
        place.cloud.create(theirs)
    assert [one.uid for one in place.cloud.nodes(ALL_ZONES) if one.name == node.name] == [node.uid]


def test_the_operator_gets_in_is_root_by_sudo_and_sees_every_chip(place: Place, home: LocalPaths, node: Node) -> None:
    dialer, shell = entered(place, home, node)
    kind = lookup(place.accelerator)
    with dialer:
        said = shell.run("id -un; sudo -n true && echo root; python3 -V")
        assert said.stdout.decode().split()[:2] == [str(OPERATOR), "root"]
        assert b"Python 3." in said.stdout
        listed = shell.run(f'ls -d "$TPUFLEET_HOST_ROOT"{kind.device_prefix}[0-9]*')
        assert len(listed.stdout.split()) == kind.chips_per_host


def test_the_metadata_server_says_who_the_host_is(place: Place, home: LocalPaths, node: Node) -> None:
    ask = (
        'curl -sS -H "Metadata-Flavor: Google" '
        '"http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/attributes/'
    )
    dialer, shell = entered(place, home, node)
    with dialer:
        assert shell.run(f'{ask}agent-worker-number"').stdout.strip() == b"0"
        assert f"ACCELERATOR_TYPE: '{place.accelerator}'" in shell.run(f'{ask}tpu-env"').stdout.decode()


def test_labels_and_metadata_can_be_replaced_while_it_is_ready(place: Place, node: Node) -> None:
    marked = {**node.labels, labels.ADOPTED: "true"}
    place.until(place.cloud.update(node.name, node.zone, labels=marked).finished, "the update")
    changed = found(place, node.name)
    assert changed
    assert changed.adopted
    assert changed.metadata == node.metadata
    place.until(place.cloud.update(node.name, node.zone, labels=node.labels).finished, "the update back")


def test_a_zone_that_is_none_of_ours_and_a_type_that_a_zone_has_not_are_told_apart(
    place: Place, request_: NodeRequest
) -> None:
    with pytest.raises(ZoneNotGranted):
        place.cloud.nodes("mars-north1-a")
    elsewhere = "v4-8" if place.zone != "us-central2-b" else "v2-8"
    with pytest.raises(NotOffered):
        place.cloud.create(
            dataclasses.replace(request_, name=f"{FLEET}-no", accelerator=elsewhere, runtime=lookup(elsewhere).runtime)
        )


def test_a_queued_resource_makes_its_node_and_takes_it_along(place: Place, home: LocalPaths) -> None:
    request = wish(place, "queued", home.key, queued=True, valid_s=3600.0)
    pending = place.cloud.create(request)
    try:
        made = ready(place, request, pending)
        assert made.queued == request.name
        (queued,) = [one for one in place.cloud.queued(place.zone) if one.name == request.name]
        assert (queued.state, queued.node) == (QueuedState.ACTIVE, request.name)
        assert labels.fleet_of(queued.labels) == FLEET
        place.cloud.create(request)  # the same wish again is no second one
    finally:
        place.cloud.delete_queued(request.name, place.zone)
    place.until(lambda: not [one for one in place.cloud.queued(place.zone) if one.name == request.name], "its end")
    gone(place, request.name)
    assert place.cloud.delete_queued(request.name, place.zone) is None


def test_what_is_absent_is_deleted_already(place: Place) -> None:
    assert place.cloud.delete(f"{FLEET}-never", place.zone) is None
