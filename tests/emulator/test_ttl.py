"""A node's ttl, kept by the node itself: on the rehearsal cloud, end to end, with nobody at home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tpu_v2

from tpufleet import labels
from tpufleet.ops.startup import startup_script

from .rig import PARENT, RUNTIME, Rig, until

ACCOUNT = tpu_v2.ServiceAccount(scope=["https://www.googleapis.com/auth/cloud-platform"])
READ_ONLY = tpu_v2.ServiceAccount(scope=["https://www.googleapis.com/auth/devstorage.read_only"])


def ends_after(seconds: int) -> dict[str, Any]:
    """Label and startup script of a node that lives so long; its own script takes its time."""
    script = startup_script(b"#!/bin/sh\nsleep 1000\n", keeps_ttl=True)
    return {"labels": {labels.TTL: str(seconds)}, "metadata": {"startup-script": script}}


def noted(rig: Rig, host: str) -> dict[str, Any]:
    file = rig.root(host) / "var/lib/tpufleet/ttl.json"
    until(file.exists, f"{host} has looked")
    return json.loads(file.read_text())


def test_a_node_whose_time_is_over_is_gone_by_itself(shared: Rig, name: str) -> None:
    shared.create(name, "v2-8", **ends_after(2), service_account=ACCOUNT)
    assert noted(shared, f"{name}-w0")["can_delete"] is True
    until(lambda: name not in shared.names(), f"{name} has deleted itself")


def test_a_queued_resource_goes_with_its_node(shared: Rig, name: str) -> None:
    node = tpu_v2.Node(accelerator_type="v2-8", runtime_version=RUNTIME, **ends_after(2), service_account=ACCOUNT)
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
    shared.create(name, "v2-8", **ends_after(3600), **fields)
    assert noted(shared, f"{name}-w0") | {"expires": 0} == {"expires": 0, "can_delete": False, "why": why}
    shared.delete(name)


def test_of_many_workers_the_first_alone_keeps_the_time(shared: Rig, name: str) -> None:
    parent = "projects/p/locations/us-central1-a"
    shared.create(name, "v2-32", parent, **ends_after(3), service_account=ACCOUNT)
    noted(shared, f"{name}-w0")
    assert not (shared.root(f"{name}-w1") / "var/lib/tpufleet/ttl.json").exists()
    listed = shared.client.list_nodes
    until(lambda: not list(listed(parent=parent, timeout=10)), f"{name} has deleted itself")


def test_a_node_whose_label_was_taken_away_is_left_alone(shared: Rig, name: str) -> None:
    made = shared.create(name, "v2-8", **ends_after(3), service_account=ACCOUNT)
    noted(shared, f"{name}-w0")
    made.labels.clear()
    shared.client.update_node(node=made, update_mask="labels", timeout=10)
    root = shared.root(f"{name}-w0")

    def timer_runs() -> bool:
        return any(_is_timer(path, root) for path in Path("/proc").glob("[0-9]*"))

    until(lambda: not timer_runs(), "the timer has looked at the node and ended")
    assert name in shared.names()
    shared.delete(name)


def _is_timer(process: Path, root: Path) -> bool:
    """Whether the process is a timer of the host below `root`: a Python that reads its program from stdin."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return words[:2] == [b"python3", b"-"] and str(root).encode() in (process / "environ").read_bytes()
    except OSError:
        return False
