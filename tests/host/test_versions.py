"""What a host tells of a run's beginning: which Python with which versions, and what was changed in the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpufleet.host.changes import MOST, changes_of, keep
from tpufleet.host.git import is_dirty
from tpufleet.host.versions import versions_of

from .harness import Host
from .test_code import REPO, git, repository, send

__all__ = ["repository"]  # the fixture
OWN = ".".join(map(str, sys.version_info[:3]))


def make_venv(folder: Path, *options: str, **installed: str) -> Path:
    """A virtual environment as the standard library makes them, with names of distributions in it; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *options, str(folder)], check=True)
    for name, version in installed.items():
        install(next((folder / "lib").glob("python3*")) / "site-packages", name, version)
    return folder / "bin/python"


def install(site: Path, name: str, version: str) -> None:
    (site / f"{name}-{version}.dist-info").mkdir(parents=True)


def test_a_virtual_environment_s_own_packages_are_told(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "env", torch="2.13.0+cpu", torch_xla="2.9.0", numpy="2.4.6", requests="2.34.0")
    assert versions_of([str(python), "train.py"], {}, tmp_path) == {
        "python": OWN,
        "torch": "2.13.0+cpu",
        "torch_xla": "2.9.0",
        "numpy": "2.4.6",
    }


def test_what_is_told_is_what_the_python_itself_says(tmp_path: Path) -> None:
    make_venv(tmp_path / "env", jax="0.9.1", jaxlib="0.9.1")
    python = tmp_path / "env/bin/python"
    program = (
        "import importlib.metadata as m, platform, json;"
        "found = {name: m.version(name) for name in ('jax', 'jaxlib')};"
        "print(json.dumps({'python': platform.python_version(), **found}))"
    )
    for name in ("jax", "jaxlib"):
        folder = next((tmp_path / "env").glob(f"lib/python3*/site-packages/{name}-*"))
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9.1\n")
    said = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout

    assert versions_of(["python"], {"PATH": str(python.parent)}, tmp_path) == json.loads(said)


@pytest.mark.parametrize(
    "command", [["python3"], ["bash", "train.sh"], ["uv", "run", "train.py"], ["./tool"], ["./script.sh"], ["envtool"]]
)
def test_the_environment_s_python_is_found_through_whatever_starts_it(tmp_path: Path, command: list[str]) -> None:
    python = make_venv(tmp_path / "tree/.venv", libtpu_nightly="0.1.dev20260101")
    programs = tmp_path / "programs"
    programs.mkdir()
    write_program(programs / "uv", "\x7fELF")
    write_program(programs / "envtool", "#!/usr/bin/env python\n")
    write_program(tmp_path / "tree/tool", f"#!{python}\nprint(1)\n")
    write_program(tmp_path / "tree/script.sh", "#!/bin/sh\npython train.py\n")
    env = {"PATH": f"{python.parent}:{programs}:/usr/bin:/bin"}
    assert versions_of(command, env, tmp_path / "tree") == {"python": OWN, "libtpu": "0.1.dev20260101"}


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("command", [["true"], ["./absent"], ["not-there"], ["\0"], ["data.bin"], [str(Path("/"))]])
def test_a_command_that_is_no_python_has_no_versions(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "data.bin").write_bytes(b"\x00\xff")
    assert versions_of(command, {"PATH": "/usr/bin:/bin"}, tmp_path) == {}


def test_an_environment_that_lets_the_system_s_packages_in_comes_first(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "more"
    python = make_venv(tmp_path / "env", "--system-site-packages", torch="2.13.0")
    user = home / ".local/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    install(user, "torch", "1.0.0")
    install(user, "lightning", "2.6.0")
    install(path, "jax", "0.9.0")
    env = {"HOME": str(home), "PYTHONPATH": str(path)}
    found = versions_of([str(python)], env, tmp_path)
    assert (found["torch"], found["lightning"], found["jax"]) == ("2.13.0", "2.6.0", "0.9.0")
    alone = make_venv(tmp_path / "alone")
    assert versions_of([str(alone)], env, tmp_path) == {"python": OWN, "jax": "0.9.0"}


def test_names_that_try_something_are_passed_over(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "env")
    site = next((tmp_path / "env/lib").glob("python3*")) / "site-packages"
    for name in ("torch-\x1b]52;c;x\x07.dist-info", "torch-.dist-info", "torch-<b>.dist-info", "numpy-" + "9" * 200):
        (site / name).mkdir()
    assert versions_of([str(python)], {}, tmp_path) == {"python": OWN}


def test_a_run_s_state_says_what_it_runs_with(host: Host) -> None:
    host.enqueue(host.spec("gpt", "pass"))
    state = host.wait_for("gpt", "done")
    assert state["versions"]["python"].startswith("3.")
    [shown] = host.call("manifest")["runs"]
    assert shown["state"]["versions"] == state["versions"]


def test_a_command_that_is_no_python_runs_and_says_nothing(host: Host) -> None:
    host.enqueue(host.spec("gpt"))
    assert host.wait_for("gpt", "done")["versions"] == {}


def start_dirty(host: Host, repository: Path) -> tuple[Path, dict[str, object]]:
    """A checkout on the host that was changed by hand, and a run that is asked for in it."""
    first = git(repository, "rev-parse", "HEAD")
    send(host, repository, first)
    tree = Path(host.call("code", repo=REPO, commit=first)["tree"])
    (tree / "jobs/train.py").write_text("print('better')\n")
    return tree, host.spec("gpt", repo=REPO, commit=first, workdir="jobs")


def test_what_was_changed_by_hand_is_kept_with_the_run_and_comes_home(host: Host, repository: Path) -> None:
    tree, asked = start_dirty(host, repository)
    (tree / "jobs/model.py").write_text("width = 64\n")
    host.enqueue(asked)
    assert host.wait_for("gpt", "done")["dirty"] is True
    diff = (host.run_dir("gpt") / "changes.diff").read_text()
    assert "-print('trained')\n+print('better')\n" in diff
    [shown] = host.call("manifest")["runs"]
    assert "changes.diff" in [file["path"] for file in shown["files"]]
    git(tree, "checkout", "--quiet", "HEAD", "--", "jobs/train.py")
    (tree / "jobs/model.py").unlink()
    subprocess.run(["git", "-C", str(tree), "apply"], input=diff, text=True, check=True)
    assert (tree / "jobs/train.py").read_text() == "print('better')\n"
    assert (tree / "jobs/model.py").read_text() == "width = 64\n"


def test_a_run_in_a_clean_checkout_has_no_changes(host: Host, repository: Path) -> None:
    tree, asked = start_dirty(host, repository)
    git(tree, "checkout", "--quiet", "HEAD", "--", "jobs/train.py")
    host.enqueue(asked)
    assert host.wait_for("gpt", "done")["dirty"] is False
    assert not (host.run_dir("gpt") / "changes.diff").exists()


def test_a_clean_start_removes_what_an_earlier_attempt_left(tmp_path: Path, repository: Path) -> None:
    (repository / "jobs/train.py").write_text("print('better')\n")
    keep(repository, tmp_path)
    assert (tmp_path / "changes.diff").read_bytes().startswith(b"diff --git")
    keep(None, tmp_path)
    assert not (tmp_path / "changes.diff").exists()


def test_of_untracked_files_secrets_data_and_environments_are_not_shown(repository: Path) -> None:
    kept_apart = {
        ".env": "WANDB_API_KEY=abc123",
        "wandb-token.txt": "abc123",
        "service.key": "abc123",
        "credentials.json": "abc123",
        ".venv/lib/x.py": "abc123",
        "jobs/__pycache__/y.py": "abc123",
        "weights.bin": "\0abc123",
        "big.txt": "abc123" * 20_000,
    }
    for name, text in kept_apart.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    (repository / "tokenizer.py").write_text("vocabulary = 256")
    (repository / "outside").symlink_to("/etc/hostname")
    os.mkfifo(repository / "pipe")
    diff = changes_of(repository).decode()
    assert "abc123" not in diff
    assert "+vocabulary = 256\n\\ No newline at end of file" in diff
    assert "weights.bin" in diff
    assert "__pycache__" not in diff
    assert ".venv" not in diff


def test_of_a_tracked_file_that_looks_like_a_secret_only_the_name_is_shown(repository: Path) -> None:
    git(repository, "config", "diff.noprefix", "true")
    for name in (".env", "deploy/prod.key", "jobs/token.py"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text("KEY=old-abc123\n")
    git(repository, "add", "--force", ".")
    git(repository, "commit", "--quiet", "--message", "secrets, alas")
    for name in (".env", "deploy/prod.key", "jobs/token.py"):
        (repository / name).write_text("KEY=new-abc123\n")
    (repository / "jobs/train.py").write_text("diff --git a/x b/x\n")
    diff = changes_of(repository).decode()
    assert "abc123" not in diff
    assert diff.count("# not shown here") == 3
    assert "+diff --git a/x b/x" in diff


def test_no_program_that_a_checkout_names_is_run_to_look_at_it(tmp_path: Path, repository: Path) -> None:
    ran = tmp_path / "ran"
    evil = tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $*" >>{ran}\ncat\n')
    evil.chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n*.py filter=more\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "--message", "attributes")
    settings = (
        "core.fsmonitor",
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "core.pager",
        "pager.diff",
    )
    for name in (*settings, "filter.evil.clean", "filter.more.process", "filter.evil.smudge", "core.sshCommand"):
        git(repository, "config", name, str(evil))
    git(repository, "config", "filter.evil.required", "true")
    (repository / "jobs/train.py").write_text("print('better')\n")
    (repository / "new.py").write_text("print('new')\n")
    assert "+print('better')" in changes_of(repository).decode()
    assert is_dirty(repository)
    assert not ran.exists()


def test_changes_larger_than_a_megabyte_are_cut_and_say_so(repository: Path) -> None:
    (repository / "jobs/train.py").write_text("print('ä')\n" * 100_000)
    diff = changes_of(repository)
    assert len(diff) <= MOST
    assert diff.endswith(b"# cut here: the changes are larger than 1 MB\n")


def test_a_checkout_that_git_cannot_read_is_no_reason_not_to_start(tmp_path: Path) -> None:
    keep(tmp_path, tmp_path)
    keep(tmp_path / "absent", tmp_path / "absent")
    assert not (tmp_path / "changes.diff").exists()


def test_changes_never_reads_outside_of_the_checkout(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/plain.txt").write_text("abc123")
    (repository / "inside").symlink_to(tmp_path / "outside")
    assert "abc123" not in changes_of(repository).decode()


def test_all_names_of_packages_are_told_by_their_own_spelling(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "env", Torch_XLA="2.9.0", JAX="0.9.0")
    assert versions_of([str(python)], {}, tmp_path) == {"python": OWN, "torch_xla": "2.9.0", "jax": "0.9.0"}
