"""The workshop's exercises, jobs/exercises.yaml: each job's commands are ones that its program takes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Project
from tpufleet.config.load import load
from tpufleet.model import RunSpec
from tpufleet.sweep import expand

from .trainings import ROOT, load_module

FILE = ROOT / "jobs" / "exercises.yaml"
JOBS = load(FILE).jobs
options = load_module("options")


def runs(job: str) -> tuple[RunSpec, ...]:
    return expand(job, JOBS[job])


@pytest.mark.parametrize("job", ["more", "hyper", "architecture", "options"])
def test_every_run_is_a_training_of_its_own(job: str) -> None:
    asked = [options.parse_options(run.command[2:]) for run in runs(job)]
    assert all(run.command[:2] == ("python", "train.py") for run in runs(job))
    assert len(set(asked)) == len(asked) >= 8


def test_on_xla_the_options_sweep_takes_the_scan_as_well() -> None:
    more = expand("options", JOBS["options"], grid={"scan": ["no-scan", "scan"]})
    assert len(more) == 2 * len(runs("options"))
    assert {options.parse_options(run.command[2:]).scan for run in more} == {False, True}


@pytest.fixture
def evening(jobs_python: str, tmp_path: Path) -> Iterator[Project]:
    """The exercises' fleet, from a copy of jobs/ in a repository of its own."""
    project = Project(tmp_path / "project")
    shutil.copytree(ROOT / "jobs", project.directory / "code" / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    project.git("init", "--quiet", "--initial-branch=main")
    project.commit("The jobs")
    text = FILE.read_text().replace("repo: ..", "repo: code")
    text = text.replace("../.venv-frameworks/bin", str(Path(jobs_python).parent))
    (project.directory / "tpufleet.yaml").write_text(text)
    try:
        project.run("create", "--yes")
        yield project
    finally:
        project.stop()


@pytest.mark.faults
def test_the_ways_to_complete_a_prompt_stand_side_by_side_in_the_report(evening: Project) -> None:
    evening.run("run", "completion", "--grid", "way=growing,fixed", "--follow", timeout=300)
    evening.run("collect")
    page = (evening.directory / "artifacts/exercises/report/index.html").read_text()
    won = page.split('id="sweep"')[1].split("</section>")[0]
    assert "<b>ms_a_byte</b> by way" in won
    assert "first_ms_a_byte" in won
    assert "growing" in won and "fixed" in won
