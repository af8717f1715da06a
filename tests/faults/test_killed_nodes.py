"""`create` and `delete`, killed at every point and typed again: the nodes are as wanted, and nothing else is there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.judge import NODES, Stage
from tests.faults.table import Table
from tests.project import until

CREATE = Table.of("""
    state: mkdir
    state/.gitignore.part: open
    state/.gitignore: torn rename
    journal.migrate: before after
    state/key.part: open
    state/key: torn rename
    state/lock: open
    state/bundle: mkdir open
    journal.create-node ×2: before begun ended
    cloud.create ×2: before sent after
    journal.mark: before after
    state/hostkeys.json.lock: open
    state/hostkeys.json.part: open
    state/hostkeys.json ×2: torn rename
    agent.ship ×2: before sent after
    git.init: before
    git.update-ref: before
    git.bundle: before
    agent.upload ×2: before part sent after
    agent.code ×2: before sent after
    state/bundle: remove rmdir
    command: end
""")

START = Table.of("""
    state/lock: open
    state/bundle: mkdir open
    journal.start-node: before begun ended
    cloud.start: before sent after
    journal.mark: before after
    agent.ship: before sent after
    git.init: before
    git.update-ref: before
    git.bundle: before
    agent.upload: before part sent after
    agent.code ×2: before sent after
    state/bundle: remove rmdir
    command: end
""")

DELETE = Table.of("""
    state/lock: open
    journal.delete-node ×2: before begun ended
    cloud.delete ×2: before sent after
    state/hostkeys.json.lock: open
    state/hostkeys.json.part: open
    state/hostkeys.json: torn rename
    command: end
""")

# The same for queued resources, where it is not the same.
ASK = Table.of("""
    journal.create-node ×2: before begun ended
    cloud.create ×2: before sent after
""")
UNASK = Table.of("""
    journal.delete-node ×2: before begun ended
    cloud.delete_queued ×2: before sent after
""")


@pytest.fixture
def direct(stages: Callable[[str], Stage]) -> Stage:
    """No node, and nothing at home."""
    stage = stages(", ttl: 12h")
    stage.forget()
    stage.settled = False
    return stage


@pytest.fixture
def queued(stages: Callable[[str], Stage]) -> Stage:
    """The same; nodes come from queued resources."""
    stage = stages(", queued: true")
    stage.forget()
    stage.settled = False
    return stage


def judge_created(stage: Stage, *, made: int = 2) -> None:
    hosts = stage.settle("--json", "create").json["hosts"]
    assert [(host["name"], host["chips"], host["commit"]) for host in hosts] == [
        (f"{node}-w0", 4, stage.commit()) for node in NODES
    ]
    stage.judge_nodes(*NODES, made=made)
    stage.judge_leftovers()


def judge_deleted(stage: Stage) -> None:
    stage.settle("delete", "--yes")
    stage.judge_gone()
    stage.judge_leftovers()
    stage.settled = True


def stop(stage: Stage, node: str) -> None:
    """Somebody stops a node: its machine keeps its disk."""
    name = f"{stage.cloud.parent('us-central1-b')}/nodes/{node}"
    stage.cloud.client.stop_node({"name": name})
    until(lambda: stage.cloud.client.get_node({"name": name}).state.name == "STOPPED", f"{node} to be stopped")


def test_create_passes_the_points_of_the_table(direct: Stage) -> None:
    CREATE.check(direct.passed("create"))
    direct.judge_nodes(*NODES, made=2)
    judge_deleted(direct)


@CREATE.kills("cloud.create:sent#2", "state/hostkeys.json:torn")
def test_a_killed_create_is_gone_on_with(direct: Stage, point: str) -> None:
    direct.kill(point, "create")
    judge_created(direct)
    judge_deleted(direct)


@ASK.kills("cloud.create:sent")
def test_a_killed_create_of_queued_resources_is_gone_on_with(queued: Stage, point: str) -> None:
    queued.kill(point, "create")
    judge_created(queued)
    judge_deleted(queued)


@pytest.mark.faults
def test_the_start_of_a_stopped_node_passes_the_points_of_the_table(direct: Stage) -> None:
    direct.project.run("create")
    stop(direct, "tpu-1")
    START.check(direct.passed("create"))
    direct.judge_nodes(*NODES, made=2)
    judge_deleted(direct)


@START.kills(but=CREATE)
def test_a_killed_start_of_a_stopped_node_is_gone_on_with(direct: Stage, point: str) -> None:
    direct.project.run("create")
    stop(direct, "tpu-1")
    direct.kill(point, "create")
    judge_created(direct)
    judge_deleted(direct)


@pytest.mark.faults
def test_delete_passes_the_points_of_the_table(direct: Stage) -> None:
    direct.project.run("create")
    DELETE.check(direct.passed("delete", "--yes"))
    judge_deleted(direct)


@DELETE.kills("cloud.delete:sent")
def test_a_killed_delete_is_gone_on_with(direct: Stage, point: str) -> None:
    direct.project.run("create")
    direct.kill(point, "delete", "--yes")
    judge_deleted(direct)


@UNASK.kills()
def test_a_killed_delete_of_queued_resources_is_gone_on_with(queued: Stage, point: str) -> None:
    queued.project.run("create")
    queued.kill(point, "delete", "--yes")
    judge_deleted(queued)
