"""Code on a host: a real repository, its commits and its setup."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .harness import Host, wait_until

REPO = "0123456789abcdef"
GIT = ("git", "-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str) -> str:
    return subprocess.run([*GIT, "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "jobs").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "jobs/train.py").write_text("print('trained')\n")
    commit(folder, "first")
    return folder


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def send(host: Host, repository: Path, commit: str) -> None:
    """Puts a bundle where the host wants it."""
    answer = host.call("code", repo=REPO, commit=commit, bundle=True)
    assert answer["missing"]
    git(repository, "bundle", "create", "--quiet", answer["upload"], "HEAD")


def test_code_that_is_not_there_is_missing_until_a_bundle_was_sent(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    send(host, repository, first)
    answer = host.call("code", repo=REPO, commit=first, bundle=True)
    tree = Path(answer.pop("tree"))
    assert answer.pop("seconds") >= 0
    assert answer == {"commit": first, "dirty": False, "fetched": True, "setup": "none"}
    assert (tree / "jobs/train.py").read_text() == "print('trained')\n"
    assert git(tree, "rev-parse", "HEAD") == first
    assert not host.call("code", repo=REPO, commit=first, bundle=True)["fetched"]
    assert list((host.base / f"code/{REPO}/bundles").iterdir()) == []


def test_each_commit_has_a_tree_of_its_own_and_the_newest_is_the_host_s(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    send(host, repository, first)
    old = host.call("code", repo=REPO, commit=first)["tree"]
    (repository / "jobs/train.py").write_text("print('better')\n")
    second = commit(repository, "second")
    send(host, repository, second)
    new = host.call("code", repo=REPO, commit=second)["tree"]
    assert Path(old, "jobs/train.py").read_text() == "print('trained')\n"
    assert Path(new, "jobs/train.py").read_text() == "print('better')\n"
    Path(new, "jobs/train.py").write_text("changed by hand")
    Path(new, "untracked").touch()
    assert host.call("probe")["code"] == [{"repo": REPO, "commit": second, "dirty": True}]


def test_a_run_starts_in_its_tree_with_commit_and_dirtiness_on_record(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    asked = host.spec("gpt", command=["python3", "train.py"], repo=REPO, commit=first, workdir="jobs")
    assert host.error("enqueue", runs=[asked])["kind"] == "not-found"
    send(host, repository, first)
    tree = host.call("code", repo=REPO, commit=first)["tree"]
    (Path(tree) / ".venv/bin").mkdir(parents=True)
    python = Path(tree) / ".venv/bin/python3"
    python.write_text('#!/bin/sh\necho "in $VIRTUAL_ENV, $(cat "$1")"\n')
    python.chmod(0o755)
    host.enqueue(asked)
    ended = host.wait_for("gpt", "done")
    assert (ended["commit"], ended["dirty"]) == (first, False)
    assert host.log("gpt") == f"in {tree}/.venv, print('trained')\n"


@pytest.mark.parametrize("workdir", ["nowhere", "out"])
def test_a_working_directory_must_be_in_the_tree(host: Host, repository: Path, tmp_path: Path, workdir: str) -> None:
    (repository / "out").symlink_to(tmp_path)
    first = commit(repository, "a way out")
    send(host, repository, first)
    host.call("code", repo=REPO, commit=first)
    host.enqueue(host.spec("gpt", "print(1)", repo=REPO, commit=first, workdir=workdir))
    ended = host.wait_for("gpt", "failed")
    assert ended["reason"] == "cannot start"
    assert host.log("gpt") == f"tpufleet: {workdir}: no such directory in the repository\n"


def test_setup_runs_once_for_the_same_lines_and_commit_even_when_two_ask_at_once(host: Host, repository: Path) -> None:
    import json

    first = git(repository, "rev-parse", "HEAD")
    send(host, repository, first)
    request = {"repo": REPO, "commit": first, "setup": ["echo once >> setup-ran", "test -f jobs/train.py"]}
    both = [host.start("code") for _ in range(2)]
    answers = []
    for process in both:
        assert process.stdin
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
    for process in both:
        with process:
            assert process.stdout
            answers.append(json.loads(process.stdout.read()))
    assert sorted(answer["setup"] for answer in answers) == ["cached", "ran"]
    assert (Path(answers[0]["tree"]) / "setup-ran").read_text() == "once\n"
    assert host.call("code", **{**request, "setup": ["true"]})["setup"] == "ran"


def test_a_failing_setup_says_how_it_ended_and_is_tried_again(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    send(host, repository, first)
    request = {"repo": REPO, "commit": first, "setup": ["seq 100; ls /nowhere-at-all; test -f allowed"]}
    error = host.error("code", **request)
    assert error["kind"] == "setup-failed"
    assert "exited with 1" in error["message"]
    assert "nowhere-at-all" in error["message"]
    assert "\n80\n" not in error["message"]  # the last 20 lines
    tree = host.base / f"code/{REPO}/trees/{first}"
    (tree / "allowed").touch()
    assert host.call("code", **request)["setup"] == "ran"


def test_a_setup_that_takes_too_long_is_ended_with_what_it_started(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    send(host, repository, first)
    error = host.error("code", repo=REPO, commit=first, setup=["sleep 600 & sleep 600"], setup_timeout_s=0.2)
    assert "took too long" in error["message"]
    wait_until(lambda: not host.processes())


def test_setup_lines_see_no_ld_preload_and_no_git_variables_reach_git(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    host.env |= {"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere"}
    send(host, repository, first)
    host.call("code", repo=REPO, commit=first, setup=['test -z "${LD_PRELOAD+x}"'])


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch /tmp/x",
        "ext::sh -c touch% /tmp/x",
        "file:///etc",
        "/etc",
        "http://example.org/x",
        "https://example.org/x y",
        "ssh://-oProxyCommand=x/y",
        "git@-oProxyCommand=x:y",
        "https://example.org/x\n",
        "https://-x/y",
    ],
)
def test_addresses_that_git_would_take_for_something_else_are_refused(host: Host, url: str) -> None:
    error = host.error("code", repo=REPO, commit="0" * 40, url=url)
    assert error["kind"] == "bad-request"


def test_a_repository_that_cannot_be_reached_is_one_sentence(host: Host) -> None:
    error = host.error("code", repo=REPO, commit="0" * 40, url="https://127.0.0.1:1/none.git")
    assert error["kind"] == "git"
    assert error["message"].startswith("git fetch: fatal: unable to access")
    assert not list((host.base / f"code/{REPO}/trees").iterdir())


def test_a_bundle_that_is_none_is_refused_and_asked_for_again(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    upload = Path(host.call("code", repo=REPO, commit=first)["upload"])
    upload.write_bytes(b"nonsense")
    assert host.error("code", repo=REPO, commit=first)["kind"] == "git"
    assert host.call("code", repo=REPO, commit=first)["missing"]


def test_a_checkout_that_was_interrupted_is_begun_anew(host: Host, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    send(host, repository, first)
    tree = Path(host.call("code", repo=REPO, commit=first)["tree"])
    shutil.rmtree(tree / "jobs")
    tree.rename(tree.with_name(f".{first}"))
    again = Path(host.call("code", repo=REPO, commit=first)["tree"])
    assert (again / "jobs/train.py").exists()
    assert [path.name for path in again.parent.iterdir()] == [first]
