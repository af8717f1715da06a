"""Two people work on one fleet at the same time, each on a machine of their own: no run twice, no node lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Project
from tpufleet.ssh.keys import ensure_key

# Whoever is in a run's process holds the run's lock; a second one writes down that it is there.
HOLDS = """\
import fcntl, os, pathlib, time
judge = pathlib.Path(os.environ["JUDGE"])
run = os.environ["TPUFLEET_RUN_ID"]
lock = (judge / (run + ".lock")).open("a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (judge / "doubled").open("a").write(run + " attempt " + os.environ["TPUFLEET_ATTEMPT"] + "\\n")
(judge / "starts").open("a").write(run + "\\n")
while not (judge / "over").exists():
    time.sleep(0.05)
"""
JOBS = """\
  holds: {{command: [python3, holds.py, "{{seed}}"], grid: {{seed: [0, 1, 2, 3, 4]}}, env: {{JUDGE: "{judge}"}}}}
"""
DEEDS = (
    ("create",),
    ("run", "holds"),
    ("run", "holds", "--set", "seed=3"),
    ("stop", "holds"),
    ("delete", "--yes"),
    ("delete", "--yes", "tpu-1"),
    ("collect",),
)
# A new fleet on which both run seed 3 at the same moment; each by itself would send it to another host. None: anything.
CYCLE: tuple[list[tuple[str, ...]] | None, ...] = (
    [("create",), ("create",)],
    [("run", "holds"), ("run", "holds", "--set", "seed=3")],
    None,
    [("delete", "--yes"), ("delete", "--yes")],
)
EXPECTED = {0, 2, 3, 4, 5, 6, 8}  # neither a bug (1) nor a run that failed (7)


@pytest.fixture
def judge(tmp_path: Path) -> Path:
    path = tmp_path / "judge"
    path.mkdir()
    return path


@pytest.fixture
def operators(tmp_path: Path, judge: Path, request: pytest.FixtureRequest) -> Iterator[list[Project]]:
    """Two operators of one fleet on one cloud, each with a directory of their own, or both in one."""
    first = Project.make(tmp_path / "first", count=2, jobs=JOBS.format(judge=judge))
    (first.directory / "code/holds.py").write_text(HOLDS)
    first.commit("A job that holds")
    ensure_key(tmp_path / "key")
    file = first.directory / "tpufleet.yaml"
    text = file.read_text().replace("repo: code", f"repo: {first.directory / 'code'}")
    file.write_text(text + f"ssh: {{key: {tmp_path / 'key'}}}\n")
    second = first
    if request.param == "apart":
        second = Project(tmp_path / "second")
        second.directory.mkdir()
        shutil.copy(file, second.directory)
    for project in (first, second):
        project.env["TPUFLEET_EMULATOR"] = str(tmp_path / "cloud")
    yield [first, second]
    (judge / "over").touch()
    first.run("emulator", "stop")


@pytest.mark.parametrize(
    ("operators", "rounds"),
    [
        ("apart", 3),
        pytest.param("apart", 50, marks=pytest.mark.faults),
        pytest.param("together", 50, marks=pytest.mark.faults),
    ],
    indirect=["operators"],
)
def test_what_two_people_do_at_the_same_time_doubles_no_run_and_loses_no_node(
    operators: list[Project], judge: Path, rounds: int
) -> None:
    dice = random.Random(rounds)  # noqa: S311 - a repeatable choice of deeds, no secret
    for number in range(rounds):
        deeds = CYCLE[number % len(CYCLE)] or [dice.choice(DEEDS) for _ in operators]
        both = [project.popen(*deed) for project, deed in zip(operators, deeds, strict=True)]
        for process, deed in zip(both, deeds, strict=True):
            out, err = process.communicate(timeout=120)
            assert process.returncode in EXPECTED, (number, deed, out, err)
            assert "Traceback" not in out + err, (number, deed, err)
        assert not (judge / "doubled").exists(), (number, deeds, (judge / "doubled").read_text())
    settles(operators, judge)


def settles(operators: list[Project], judge: Path) -> None:
    """Typed once more, all is as wanted, both see the same, and after `delete` the cloud's own book shows nothing."""
    first, second = operators
    first.run("create")
    second.run("run", "holds")
    runs = {f"holds-seed{seed}" for seed in range(5)}
    for project in operators:
        status = project.json("status")
        assert [(node["name"], node["state"]) for node in status["nodes"]] == [("tpu-0", "READY"), ("tpu-1", "READY")]
        assert {run["id"] for run in project.json("runs")["runs"] if run["state"] == "running"} == runs
    alive = [node["name"].rpartition("/")[2] for node in first.json("emulator", "book")["nodes"] if not node["deleted"]]
    assert sorted(alive) == ["tpu-0", "tpu-1"]
    assert set((judge / "starts").read_text().split()) == runs
    second.run("delete", "--yes")
    assert all(node["deleted"] for node in first.json("emulator", "book")["nodes"])
    assert not (judge / "doubled").exists()
