"""A run starts from the commit and the set-up it was planned with, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpufleet.host.setup import environment_id

from .harness import Host
from .test_code import REPO, git, repository, send

__all__ = ["repository"]
LINES = ["echo made >> made-by-setup", "echo '# set up' >> jobs/train.py"]


@pytest.fixture
def first(host: Host, repository: Path) -> str:
    """The repository's commit, on the host."""
    commit = git(repository, "rev-parse", "HEAD")
    send(host, repository, commit)
    return commit


def tree_of(host: Host, commit: str, *setup: str) -> Path:
    return Path(host.call("code", repo=REPO, commit=commit, setup=list(setup))["tree"])


def test_what_set_up_does_to_tracked_files_is_no_change_by_hand(host: Host, first: str) -> None:
    tree = tree_of(host, first, *LINES)
    assert not host.call("code", repo=REPO, commit=first, setup=LINES)["dirty"]
    assert not host.call("probe")["code"][0]["dirty"]
    (tree / "jobs/train.py").write_text("print('changed')\n")
    assert host.call("code", repo=REPO, commit=first, setup=LINES)["dirty"]


def test_other_lines_for_the_same_commit_begin_from_a_clean_checkout(host: Host, first: str) -> None:
    tree = tree_of(host, first, *LINES)
    assert (tree / "made-by-setup").exists()
    again = host.call("code", repo=REPO, commit=first, setup=["true"])
    assert (again["setup"], again["dirty"]) == ("ran", False)
    assert sorted(path.name for path in tree.iterdir()) == [".git", "jobs"]
    assert host.call("code", repo=REPO, commit=first, setup=LINES)["setup"] == "ran"
    assert (tree / "made-by-setup").read_text() == "made\n"
    assert [path.name for path in tree.parent.iterdir()] == [first]


def test_a_checkout_that_was_changed_by_hand_is_restored_only_when_that_is_asked_for(host: Host, first: str) -> None:
    tree = tree_of(host, first, *LINES)
    (tree / "jobs/train.py").write_text("print('changed')\n")
    tree_of(host, first, *LINES)
    assert (tree / "jobs/train.py").read_text() == "print('changed')\n"
    restored = host.call("code", repo=REPO, commit=first, setup=LINES, restore=True)
    assert (restored["setup"], restored["dirty"]) == ("ran", False)
    assert (tree / "jobs/train.py").read_text() == "print('trained')\n# set up\n"
    assert host.call("code", repo=REPO, commit=first, setup=LINES, restore=True)["setup"] == "cached"


def test_an_environment_is_not_changed_under_runs_that_have_not_ended(host: Host, first: str, tmp_path: Path) -> None:
    tree = tree_of(host, first, *LINES)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    body = f"open({str(fifo)!r}).read()"
    host.enqueue(host.spec("gpt", body, repo=REPO, commit=first, environment=environment_id(LINES)))
    for asked in ({"setup": ["true"]}, {"setup": []}):
        error = host.error("code", repo=REPO, commit=first, **asked)
        assert error["kind"] == "drift"
        assert "in use by gpt" in error["message"]
    (tree / "jobs/train.py").write_text("print('changed')\n")
    assert host.error("code", repo=REPO, commit=first, setup=LINES, restore=True)["kind"] == "drift"
    fifo.write_text("go on")
    host.wait_for("gpt", "done")
    assert host.call("code", repo=REPO, commit=first, setup=["true"])["setup"] == "ran"


def test_lines_added_later_wait_as_well_for_runs_that_were_planned_without(
    host: Host, first: str, tmp_path: Path
) -> None:
    tree_of(host, first)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    host.enqueue(host.spec("gpt", f"open({str(fifo)!r}).read()", repo=REPO, commit=first))
    assert host.error("code", repo=REPO, commit=first, setup=["true"])["kind"] == "drift"
    fifo.write_text("go on")
    host.wait_for("gpt", "done")
    assert host.call("code", repo=REPO, commit=first, setup=["true"])["setup"] == "ran"


def test_a_run_that_was_planned_with_another_set_up_is_refused(host: Host, first: str) -> None:
    tree_of(host, first, "true")
    run = host.spec("gpt", "print(1)", repo=REPO, commit=first, environment=environment_id(LINES))
    error = host.error("enqueue", runs=[run])
    assert (error["kind"], "set up anew" in error["message"]) == ("drift", True)
    assert host.call("probe")["runs"] == []


def test_a_run_on_a_changed_checkout_has_that_on_record(host: Host, first: str) -> None:
    tree = tree_of(host, first)
    (tree / "jobs/train.py").write_text("print('changed')\n")
    host.enqueue(host.spec("gpt", "print(1)", repo=REPO, commit=first, environment=environment_id([]), dirty=True))
    assert host.wait_for("gpt", "done")["dirty"] is True
