"""Completion in a real bash, with the script that `--show-completion` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.project import Project, missing
from tpufleet.cli import completion
from tpufleet.state.store import Journal, Placement

pytestmark = pytest.mark.skipif(missing("bash") is not None, reason="bash is not installed")

PEOPLE = "people:\n  - {name: ada, key: x}\n  - {name: grace, key: y}\n"


@pytest.fixture
def here(tmp_path: Path) -> Project:
    """A project with a home, a journal and people; no cloud was ever started."""
    project = Project.make(tmp_path / "project", count=2)
    with (project.directory / "tpufleet.yaml").open("a") as file:
        file.write(PEOPLE)
    home = project.directory / "artifacts" / "sherlock"
    home.mkdir(parents=True)
    (home / "runs.json").write_text('{"runs": [{"id": "gpt-lr0.001-seed0"}, {"id": "$(reboot)"}, {"id": 7}, 3]}')
    (project.directory / ".tpufleet").mkdir()
    journal = Journal(project.directory / ".tpufleet" / "journal.db")
    journal.placed([Placement("gpt-lr0.001-seed1", "elsewhere-3-w1", "1-w1")])
    journal.close()
    return project


def complete(project: Project, line: str) -> list[str]:
    """What bash offers at the end of `line`, by the words of its own COMP_ variables."""
    program = project.directory / "bin" / "tpufleet"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tpufleet "$@"\n')
    program.chmod(0o755)
    script = """
        source /dev/stdin <<< "$(_TPUFLEET_COMPLETE=source_bash tpufleet)" || exit 9
        read -ra COMP_WORDS <<< "$1"; [[ "$1" == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); COMP_LINE="$1"; COMP_POINT=${#1}
        "$(complete -p tpufleet | sed 's/.*-F \\([^ ]*\\).*/\\1/')" tpufleet
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", **project.env}
    done = subprocess.run(
        [shutil.which("bash") or "bash", "--norc", "-c", script, "bash", line],
        cwd=project.directory,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_runs_jobs_hosts_and_people(here: Project) -> None:
    assert complete(here, "tpufleet logs -f gpt") == ["gpt-lr0.001-seed0", "gpt-lr0.001-seed1"]
    assert complete(here, "tpufleet run ") == ["fails", "job", "one"]
    assert complete(here, "tpufleet exec --on tpu-0,tpu-1") == ["tpu-0,tpu-1-w0", "tpu-0,tpu-1"]
    assert complete(here, "tpufleet people revoke g") == ["grace"]
    assert complete(here, "tpufleet collect j") == ["job"]
    assert complete(here, "tpufleet collect --only c") == ["checkpoints", "completions"]
    assert not (here.directory / ".tpufleet" / "emulator").exists(), "no cloud was asked"


def test_where_nothing_can_be_read_it_is_silent(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project")
    (project.directory / "tpufleet.yaml").write_text("fleet: [\n  jobs: {\x00")
    assert complete(project, "tpufleet run ") == []


def offered(project: Project, find: completion.Complete, start: str = "") -> list[str]:
    root = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None, invoke_without_command=True)))
    root.params["config"] = project.directory / "tpufleet.yaml"
    return find(root, start)


def test_names_that_a_shell_could_take_for_more_are_not_offered(here: Project) -> None:
    assert offered(here, completion.runs_and_jobs) == ["fails", "gpt-lr0.001-seed0", "gpt-lr0.001-seed1", "job", "one"]
    assert offered(here, completion.hosts) == ["elsewhere-3-w1", "tpu-0-w0", "tpu-1-w0"]
    assert offered(here, completion.people, "a") == ["ada"]
    assert offered(here, completion.one_of("logs", "metrics"), "l") == ["logs"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "jobs: 3",
        "nodes: {a: 1}",
        "nodes: [{name: [], count: x}]",
        "people: {}",
        "a: &a [*a]",
        "nodes: [{count: -1}]",
    ],
)
def test_a_strange_fleet_file_offers_nothing_and_raises_nothing(tmp_path: Path, text: str) -> None:
    project = Project(tmp_path)
    (tmp_path / "tpufleet.yaml").write_text(text)
    (tmp_path / ".tpufleet").mkdir()
    (tmp_path / ".tpufleet" / "journal.db").write_bytes(b"no database")
    for find in (completion.runs_and_jobs, completion.jobs, completion.hosts, completion.nodes, completion.people):
        assert offered(project, find) == []
