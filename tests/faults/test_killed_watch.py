"""`watch` and `collect`, killed at every point and typed again: runs go on once and come home whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.judge import NODES, Stage
from tests.faults.table import Table
from tests.project import until

MIRROR = Table.of("""
    state/watch.lock: open
    home/.lock: open
    home/runs/RUN ×2: mkdir
    home/runs/RUN/.collected.json.part: open
    home/runs/RUN/.collected.json ×4: torn rename
    home/runs/RUN/run.json.part: open
    home/runs/RUN/run.json ×4: torn rename
    home/runs.json.part: open
    home/runs.json ×2: torn rename
    journal.mark: before after
    home/runs/RUN/.parts: mkdir rmdir
    home/runs/RUN/.parts/checkpoints: mkdir rmdir
    home/runs/RUN/.parts/checkpoints/step-00000010: mkdir
    agent.fetch ×7: read
    home/runs/RUN/.parts/log.txt: open
    home/runs/RUN/.parts/metrics.jsonl: open
    home/runs/RUN/.parts/checkpoints/step-00000010/model.bin: open
    home/runs/RUN/.parts/checkpoints/step-00000010/manifest.json: open
    home/runs/RUN/log.txt: torn rename
    home/runs/RUN/metrics.jsonl: torn rename
    home/runs/RUN/checkpoints: mkdir
    home/runs/RUN/checkpoints/step-00000010 ×2: rename
    home/nodes.json.part: open
    home/nodes.json: torn rename
    command: end
""")

MEND = Table.of("""
    state/watch.lock: open
    home/.lock: open
    journal.mark: before after
    state/lock ×2: open
    state/bundle ×2: mkdir
    state/bundle: open
    journal.delete-node: before begun ended
    cloud.delete: before sent after
    journal.create-node: before begun ended
    cloud.create: before sent after
    state/hostkeys.json.lock: open
    state/hostkeys.json.part: open
    state/hostkeys.json: torn rename
    agent.ship: before sent after
    git.init: before
    git.update-ref: before
    git.bundle: before
    agent.upload ×3: before part sent after
    agent.code ×2: before sent after
    state/bundle: remove rmdir
    home/runs/RUN/run.json.part: open
    home/runs/RUN/run.json: torn rename
    home/runs/RUN/.collected.json.part: open
    home/runs/RUN/.collected.json: torn rename
    home/runs.json.part: open
    home/runs.json: torn rename
    agent.restore: before sent after
    journal.placed: before after
    journal.enqueue: before begun ended
    agent.enqueue: before sent after
    home/nodes.json.part: open
    home/nodes.json: torn rename
    command: end
""")

COLLECT = Table.of("""
    state/lock: open
    home/.lock: open
    home/nodes.json.part: open
    home/nodes.json: torn rename
    home/runs/RUN: mkdir
    home/runs/RUN/.collected.json.part: open
    home/runs/RUN/.collected.json: torn rename
    home/runs/RUN/run.json.part: open
    home/runs/RUN/run.json: torn rename
    home/runs/RUN/.parts: mkdir rmdir
    home/runs/RUN/.parts/checkpoints: mkdir rmdir
    home/runs/RUN/.parts/checkpoints/step-00000010: mkdir
    home/runs/RUN/.parts/checkpoints/step-00000020: mkdir
    agent.fetch ×11: read
    home/runs/RUN/.parts/log.txt: open
    home/runs/RUN/.parts/metrics.jsonl: open
    home/runs/RUN/.parts/checkpoints/step-00000010/model.bin: open
    home/runs/RUN/.parts/checkpoints/step-00000010/manifest.json: open
    home/runs/RUN/.parts/checkpoints/step-00000020/model.bin: open
    home/runs/RUN/.parts/checkpoints/step-00000020/manifest.json: open
    home/runs/RUN/log.txt: torn rename
    home/runs/RUN/metrics.jsonl: torn rename
    home/runs/RUN/checkpoints: mkdir
    home/runs/RUN/checkpoints/step-00000010: rename
    home/runs/RUN/checkpoints/step-00000020 ×2: rename
    home/runs.json.part: open
    home/runs.json: torn rename
    home/report/index.html.part: open
    home/report/index.html: torn rename
    home/report/index.md.part: open
    home/report/index.md: torn rename
    home/report/runs.csv.part: open
    home/report/runs.csv: torn rename
    home/report/runs.json.part: open
    home/report/runs.json: torn rename
    home/report/metrics.csv.part: open
    home/report/metrics.csv: torn rename
    home/metrics.parquet: torn rename
    command: end
""")

# What is different when the runs that come home were done anew: the life before makes way.
MAKE_WAY = Table.of("""
    home/earlier/RUN ×2: rename
    home/runs/RUN ×2: mkdir
    home/runs/RUN/.collected.json ×2: torn rename
""")


@pytest.fixture
def fleet(stages: Callable[[str], Stage]) -> Iterator[Stage]:
    """Two nodes that are up; all runs before have ended, and all is home."""
    stage = stages(", ttl: 12h")
    if not stage.alive():
        stage.project.run("create")
        stage.judge_nodes(*NODES, made=2)
        words, runs = stage.pair()  # the first ones ever make directories that the others find
        stage.project.run(*words)
        stage.let_go(*runs)
        stage.project.run("collect")
    stage.settled = False
    yield stage
    if stage.settled:
        stage.judge_starts()
        stage.judge_leftovers()


def begun(stage: Stage) -> list[str]:
    """Two runs, one on each host, that have saved something and go on."""
    words, runs = stage.pair()
    stage.project.run(*words)
    stage.await_saved(*runs)
    return runs


def brought_to_an_end(stage: Stage, *runs: str) -> None:
    stage.let_go(*runs)
    stage.settle("watch", "--once")
    stage.judge_home(*runs)
    assert not (stage.project.directory / "artifacts/sherlock/earlier").exists(), "there was no earlier life"
    stage.settled = True


@pytest.mark.faults
def test_mirroring_passes_the_points_of_the_table(fleet: Stage) -> None:
    runs = begun(fleet)
    MIRROR.check(fleet.passed("watch", "--once"))
    brought_to_an_end(fleet, *runs)


@MIRROR.kills("home/runs/RUN/checkpoints/step-00000010:rename#2")
def test_a_killed_watch_brings_home_at_last_what_is_due(fleet: Stage, point: str) -> None:
    runs = begun(fleet)
    fleet.kill(point, "watch", "--once")
    fleet.settle("watch", "--once")
    fleet.judge_home(*runs, steps=(10,))
    brought_to_an_end(fleet, *runs)


def test_mending_passes_the_points_of_the_table(fleet: Stage) -> None:
    runs = begun(fleet)
    fleet.project.run("watch", "--once")
    fleet.cloud.faults.preempt("tpu-0")
    MEND.check(fleet.passed("watch", "--once"))
    fleet.judge_nodes(*NODES, made=1)
    brought_to_an_end(fleet, *runs)


@MEND.kills("agent.restore:sent")
def test_a_killed_watch_mends_at_last_and_runs_go_on_once(fleet: Stage, point: str) -> None:
    runs = begun(fleet)
    fleet.project.run("watch", "--once")
    fleet.cloud.faults.preempt("tpu-0")
    fleet.kill(point, "watch", "--once")
    fleet.settle("watch", "--once")
    fleet.judge_nodes(*NODES, made=1)
    brought_to_an_end(fleet, *runs)
    lives = sorted([(start.attempt, start.began_at) for start in fleet.starts(run)] for run in runs)
    assert lives == [[(1, 0)], [(1, 0), (2, 10)]]


@pytest.mark.faults
def test_collect_passes_the_points_of_the_table(fleet: Stage) -> None:
    runs = begun(fleet)
    fleet.let_go(*runs)
    COLLECT.check(fleet.passed("collect", *runs))
    brought_to_an_end(fleet, *runs)


@COLLECT.kills(but=MIRROR)
def test_what_a_killed_collect_had_begun_comes_home_whole(fleet: Stage, point: str) -> None:
    runs = begun(fleet)
    fleet.let_go(*runs)
    fleet.kill(point, "collect", *runs)
    page = fleet.settle("--json", "collect", *runs).json["report"]
    text = Path(page).read_text()
    assert all(run in text for run in runs)
    fleet.judge_home(*runs)
    brought_to_an_end(fleet, *runs)


@MAKE_WAY.kills()
def test_a_killed_collect_of_what_was_done_anew_keeps_each_life_whole_and_by_itself(fleet: Stage, point: str) -> None:
    words, runs = fleet.pair()
    fleet.project.run(*words)
    fleet.let_go(*runs)
    fleet.project.run("collect", *runs)
    fleet.project.run(*words, "--restart")
    until(lambda: len(fleet.starts(*runs)) == 4, "the runs to be started again", 120)
    fleet.let_go(*runs)
    fleet.kill(point, "collect", *runs)
    fleet.settle("collect", *runs)
    fleet.judge_home(*runs)
    earlier = fleet.project.directory / "artifacts/sherlock/earlier"
    assert sorted(path.name for path in earlier.glob("*")) == sorted(f"{run}.1" for run in runs)
    assert all((earlier / f"{run}.1/checkpoints/step-00000020/model.bin").exists() for run in runs)
    for run in runs:
        (earlier / f"{run}.1").rename(fleet.book / f"earlier-{run}")
    earlier.rmdir()
    fleet.settled = True
