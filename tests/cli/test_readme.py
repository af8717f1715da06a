"""Every command of the README works as it stands there, in its order."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project import Project, missing
from tests.unit.hostile_people import ed25519

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# The README's `gpt`, quick: what is shown here is that the commands work, not how a model learns.
QUICK_GPT = '  gpt: {command: [python3, job.py, "{lr}"], grid: {lr: [0.001, 0.003], seed: [0, 1, 2, 3]}}\n'


def commands() -> list[list[str]]:
    """The README's command lines as words, without their comments."""
    text = (ROOT / "README.md").read_text()
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def board(project: Project, *words: str) -> None:
    """Opens it where nobody else is, and where people sign up, lets linus do so."""
    words = (*words, "--listen", "127.0.0.1:0")  # the last one said counts
    with project.popen(*words) as running:
        assert running.stdout
        assert running.stdout.readline().startswith("board ")
        if "--sign-up" in words:
            project.run("people", "add", "linus", ed25519(1), "--apply")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)
    assert running.returncode == 0


def workshop(project: Project, *words: str) -> None:
    """Its end; the next user of the README begins anew."""
    project.run(*words, "--yes")
    project.run("create")


INSTEAD: dict[str, Callable[..., object]] = {"board": board, "workshop": workshop}


@pytest.mark.skipif(missing("ssh") is not None, reason=str(missing("ssh")))
def test_every_tpufleet_command_of_the_readme_runs_in_its_order(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project", count=2, jobs=QUICK_GPT)
    ran = 0
    try:
        for program, *words in commands():
            if program == "tpufleet":
                INSTEAD.get(words[0], Project.run)(project, *words)
                ran += 1
    finally:
        project.stop()
    assert ran >= 20


def test_every_make_command_of_the_readme_is_a_target_that_says_what_it_does() -> None:
    asked = {words[1] for words in commands() if words[0] == "make"}
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert asked == {"demo", "test"}
    assert all(re.search(rf"^{target}\s", listed, re.MULTILINE) for target in asked)


def test_nothing_else_is_typed_in_the_readme() -> None:
    assert {words[0] for words in commands()} == {"tpufleet", "make"}


def test_every_picture_and_page_the_documents_link_to_is_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
