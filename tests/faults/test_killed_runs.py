"""`sync`, `run` and `stop`, killed at every point and typed again: each attempt is started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.judge import NODES, Stage
from tests.faults.table import Table
from tests.project import until

SYNC = Table.of("""
    state/lock: open
    state/bundle: mkdir open
    agent.code ×4: before sent after
    git.init: before
    git.update-ref: before
    git.bundle: before
    agent.upload ×2: before part sent after
    state/bundle: remove rmdir
    command: end
""")

RUN = Table.of("""
    state/lock: open
    state/bundle: mkdir rmdir
    agent.code ×2: before sent after
    journal.placed: before after
    journal.enqueue ×2: before begun ended
    agent.enqueue ×2: before sent after
    command: end
""")

STOP = Table.of("""
    state/lock: open
    journal.stop ×2: before begun ended
    agent.stop ×2: before sent after
    journal.forget: before after
    command: end
""")


@pytest.fixture
def fleet(stages: Callable[[str], Stage]) -> Iterator[Stage]:
    """Two nodes that are up."""
    stage = stages("")
    if not stage.alive():
        stage.project.run("create")
        stage.judge_nodes(*NODES, made=2)
    stage.settled = False
    yield stage
    if stage.settled:
        stage.judge_starts()
        stage.judge_leftovers()


@pytest.mark.faults
def test_sync_passes_the_points_of_the_table(fleet: Stage) -> None:
    fleet.change_code()
    SYNC.check(fleet.passed("sync"))
    fleet.settled = True


@SYNC.kills("agent.code:sent#4")
def test_a_killed_sync_is_gone_on_with_and_set_up_runs_once(fleet: Stage, point: str) -> None:
    commit = fleet.change_code()
    fleet.kill(point, "sync")
    fleet.settle("sync")
    assert [(host["before"], host["dirty"]) for host in fleet.project.json("sync")["hosts"]] == [(commit, False)] * 2
    assert sum(commit in line for line in fleet.lines("setups")) == 2
    fleet.settled = True


def test_run_passes_the_points_of_the_table(fleet: Stage) -> None:
    words, runs = fleet.pair()
    RUN.check(fleet.passed(*words))
    fleet.let_go(*runs)
    fleet.settled = True


@RUN.kills("agent.enqueue:sent#2")
def test_what_a_killed_run_had_begun_is_started_once(fleet: Stage, point: str) -> None:
    words, runs = fleet.pair()
    fleet.kill(point, *words)
    fleet.settle(*words)
    fleet.let_go(*runs)
    assert sorted((start.run, start.attempt) for start in fleet.starts(*runs)) == [(run, 1) for run in sorted(runs)]
    fleet.settled = True


@RUN.kills(again=False)
def test_what_was_stopped_and_a_killed_run_had_begun_again_goes_on_once(fleet: Stage, point: str) -> None:
    words, runs = fleet.pair()
    fleet.project.run(*words)
    fleet.await_saved(*runs)
    fleet.project.run("stop", *runs)
    fleet.kill(point, *words)
    fleet.settle(*words)
    fleet.let_go(*runs)
    for run in runs:
        assert [(start.attempt, start.began_at) for start in fleet.starts(run)] == [(1, 0), (2, 10)]
    fleet.settled = True


@RUN.kills(again=False)
def test_what_is_done_and_a_killed_run_was_to_do_again_is_done_again_once(fleet: Stage, point: str) -> None:
    words, runs = fleet.pair()
    fleet.project.run(*words)
    fleet.let_go(*runs)
    fleet.hold(*runs)
    fleet.kill(point, *words, "--restart")
    fleet.settle(*words, "--restart")
    until(lambda: len(fleet.starts(*runs)) >= 4, "the runs to be started again", 120)
    fleet.let_go(*runs)
    for run in runs:
        assert [(start.attempt, start.began_at) for start in fleet.starts(run)] in (
            [(1, 0), (2, 0)],
            [(1, 0), (1, 0)],  # on the other host, where nothing is known of the first life
        )
    fleet.settled = True


@pytest.mark.faults
def test_stop_passes_the_points_of_the_table(fleet: Stage) -> None:
    words, runs = fleet.pair()
    fleet.project.run(*words)
    STOP.check(fleet.passed("stop", *runs))
    fleet.settled = True


@STOP.kills("journal.forget:before")
def test_what_a_killed_stop_was_to_end_stays_stopped_also_when_its_machine_goes(fleet: Stage, point: str) -> None:
    words, runs = fleet.pair()
    fleet.project.run(*words)
    fleet.kill(point, "stop", *runs)
    fleet.settle("stop", *runs)
    assert [fleet.state(run) for run in runs] == ["stopped"] * 2
    fleet.cloud.faults.vanish("tpu-0")
    fleet.settle("watch", "--once")
    fleet.judge_nodes(*NODES, made=1)
    assert [start.attempt for start in fleet.starts(*runs)] == [1, 1]
    known = [run for run in fleet.project.json("runs", "work")["runs"] if run["id"] in runs]
    assert {run["state"] for run in known} <= {"stopped"}
    fleet.settled = True
