"""A node's ttl, kept by the node itself: on the rehearsal cloud, end to end, with nobody at home."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from google.cloud import tpu_v2

from tpufleet.ops.startup import startup_script

from .rig import PARENT, RUNTIME, Rig, until

ACCOUNT = tpu_v2.ServiceAccount(scope=["https://www.googleapis.com/auth/cloud-platform"])
READ_ONLY = tpu_v2.ServiceAccount(scope=["https://www.googleapis.com/auth/devstorage.read_only"])


def metadata(seconds: float) -> dict[str, str]:
    script = startup_script(time.time() + seconds, b"#!/bin/sh\nsleep 1000\n")  # a script that takes its time
    return {"startup-script": script}


def noted(rig: Rig, host: str) -> dict[str, Any]:
    file = rig.root(host) / "var/lib/tpufleet/ttl.json"
    until(file.exists, f"{host} has looked")
    return json.loads(file.read_text())


def test_a_node_whose_time_is_over_is_gone_by_itself(shared: Rig, name: str) -> None:
    shared.create(name, "v2-8", metadata=metadata(2), service_account=ACCOUNT)
    assert noted(shared, f"{name}-w0")["can_delete"] is True
    until(lambda: name not in shared.names(), f"{name} has deleted itself")


def test_a_queued_resource_goes_with_its_node(shared: Rig, name: str) -> None:
    node = tpu_v2.Node(accelerator_type="v2-8", runtime_version=RUNTIME, metadata=metadata(2), service_account=ACCOUNT)
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id=name, node=node)
    wish = tpu_v2.QueuedResource(tpu={"node_spec": [spec]}, guaranteed={})
    shared.client.create_queued_resource(
        parent=PARENT, queued_resource_id=f"{name}-q", queued_resource=wish, timeout=10
    )
    until(lambda: name in shared.names(), f"{name} is there")

    def left() -> list[str]:
        found = [one.name.rpartition("/")[2] for one in shared.client.list_queued_resources(parent=PARENT, timeout=10)]
        return [one for one in (*found, *shared.names()) if one in (name, f"{name}-q")]

    until(lambda: not left(), f"{name} and its queued resource are gone")


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"service_account": READ_ONLY}, "its service account has not the scope cloud-platform")],
)
def test_a_node_that_cannot_delete_itself_says_so(shared: Rig, name: str, fields: dict[str, Any], why: str) -> None:
    shared.create(name, "v2-8", metadata=metadata(3600), **fields)
    assert noted(shared, f"{name}-w0") | {"expires": 0} == {"expires": 0, "can_delete": False, "why": why}
    shared.delete(name)


def test_of_many_workers_the_first_alone_keeps_the_time(shared: Rig, name: str) -> None:
    parent = "projects/p/locations/us-central1-a"
    shared.create(name, "v2-32", parent, metadata=metadata(3), service_account=ACCOUNT)
    noted(shared, f"{name}-w0")
    assert not (shared.root(f"{name}-w1") / "var/lib/tpufleet/ttl.json").exists()
    listed = shared.client.list_nodes
    until(lambda: not list(listed(parent=parent, timeout=10)), f"{name} has deleted itself")
