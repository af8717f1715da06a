"""What a person who agreed has on a host, as it is streamed: the person shapes it, so it is bounded."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpufleet.host import patches

from .harness import PYTHON, Host
from .people import apply, furnish, home, person

LIMITED = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tpufleet.host import belongings
from tpufleet.host.places import Places
belongings.MOST_BYTES = int(sys.argv[3])
belongings.belongings(Places(Path(sys.argv[2])), {"fleet": "sherlock", "person": "ada"})
"""


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    host = furnish(make_host())
    apply(host, person("ada", share=True))
    return host


def streamed(stream: bytes) -> tuple[dict[str, bytes], list[str]]:
    """The files that came, and the notes."""
    came: dict[str, bytes] = {}
    notes: list[str] = []
    while True:
        head, _, stream = stream.partition(b"\n")
        line: dict[str, Any] = json.loads(head)
        if line.get("end"):
            assert stream == b""
            return came, notes
        if "note" in line:
            notes.append(line["note"])
            continue
        came[line["path"]], stream = stream[: line["size"]], stream[line["size"] :]
        stream = stream.partition(b"\n")[2]


def all_of_ada(host: Host) -> tuple[dict[str, bytes], list[str]]:
    code, out = host.raw("belongings", {"fleet": "sherlock", "person": "ada"})
    assert code == 0, out
    return streamed(out)


def run_of_ada(host: Host) -> Path:
    directory = home(host, "ada") / "runs/ada-1"
    directory.mkdir(parents=True)
    return directory


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def repository(directory: Path) -> Path:
    subprocess.run(["git", "init", "-q", directory], check=True)
    (directory / "train.py").write_text("print(1)\n")
    settings = ["-c", "user.name=ada", "-c", "user.email=ada@localhost"]
    subprocess.run(["git", "-C", directory, "add", "train.py"], check=True)
    subprocess.run(["git", "-C", directory, *settings, "commit", "-q", "-m", "first"], check=True)
    return directory


def test_files_that_are_huge_or_empty_for_the_most_part_are_told_and_left_out(host: Host) -> None:
    run = run_of_ada(host)
    sparse(run / "huge", (4 << 30) + 1)
    sparse(run / "sparse", 8 << 20)
    (run / "step").write_bytes(b"1")
    (run / "whole").write_bytes(b"x" * (8 << 20))
    came, notes = all_of_ada(host)
    assert {path: len(data) for path, data in came.items()} == {"runs/ada-1/step": 1, "runs/ada-1/whole": 8 << 20}
    assert notes == [
        "runs/ada-1/huge: it is larger than 4 GiB",
        "runs/ada-1/sparse: most of it is empty (a sparse file)",
    ]


def test_there_is_a_most_of_all_that_a_person_has(host: Host) -> None:
    run = run_of_ada(host)
    for name in "abc":
        (run / name).write_bytes(b"x" * 100)
    words = [PYTHON, "-ES", "-c", LIMITED, str(host.library), str(host.root), "250"]
    done = subprocess.run(words, env=host.env, capture_output=True, check=True)
    came, notes = streamed(done.stdout)
    assert list(came) == ["runs/ada-1/a", "runs/ada-1/b"]
    assert notes == ["runs/ada-1/c: with it there would be more than 0 GiB of this person"]


def test_no_number_of_odd_files_makes_more_notes_than_home_takes(host: Host) -> None:
    run = run_of_ada(host)
    for number in range(150):
        sparse(run / f"{number:03}", 2 << 20)
    _, notes = all_of_ada(host)
    assert (len(notes), notes[-1]) == (101, "and 50 others could not be had either")


@pytest.mark.parametrize("kind", ["clean", "process"])
def test_no_filter_of_a_persons_repository_is_run(tmp_path: Path, kind: str) -> None:
    clone, ran = repository(tmp_path / "nanochat"), tmp_path / "ran"
    (clone / ".gitattributes").write_text("*.py filter=My.Filter\n")
    for setting, value in ((kind, f"touch {ran}; cat"), ("required", "true")):
        subprocess.run(["git", "-C", clone, "config", f"filter.My.Filter.{setting}", value], check=True)
    (clone / "train.py").write_text("print(2)\n")
    ((name, patch),) = patches.of_clones(tmp_path)
    assert isinstance(patch, bytes)
    assert (name, b"+print(2)" in patch, ran.exists()) == ("nanochat", True, False)


def test_a_filter_that_cant_be_switched_off_costs_the_patch(tmp_path: Path) -> None:
    clone, ran = repository(tmp_path / "nanochat"), tmp_path / "ran"
    (clone / ".gitattributes").write_text("*.py filter=a=b\n")
    with (clone / ".git/config").open("a") as file:
        file.write(f'[filter "a=b"]\n\tclean = "touch {ran}; cat"\n')
    (clone / "train.py").write_text("print(2)\n")
    assert list(patches.of_clones(tmp_path)) == [
        ("nanochat", "the names of its filters are none that can be switched off")
    ]
    assert not ran.exists()


def test_all_clones_together_have_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        repository(tmp_path / name)
    monkeypatch.setattr(patches, "TIME_LIMIT_S", 0)
    sentence = "git took longer than 0 s for all that was cloned"
    assert list(patches.of_clones(tmp_path)) == [("a", sentence), ("b", sentence)]
