"""Checkpoints and their manifests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tpufleet.host import checkpoints


def write_checkpoint(folder: Path, step: int, content: bytes = b"weights!") -> Path:
    """A checkpoint as a well-behaved job leaves it."""
    path = folder / f"step-{step:08d}"
    (path / "state").mkdir(parents=True)
    files = {"model.bin": content, "state/rng.bin": b""}
    for name, data in files.items():
        (path / name).write_bytes(data)
    records = [
        {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    ]
    (path / "manifest.json").write_text(json.dumps({"step": step, "files": records}))
    return path


def change_manifest(path: Path, change: Callable[[dict], object]) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_a_whole_checkpoint_is_verified_and_lists_its_manifest_too(tmp_path: Path) -> None:
    found = checkpoints.check(write_checkpoint(tmp_path, 100))
    assert found.verified
    assert [record.path for record in found.files] == ["model.bin", "state/rng.bin", "manifest.json"]
    manifest = (tmp_path / "step-00000100/manifest.json").read_bytes()
    assert found.files[-1][1:] == (len(manifest), hashlib.sha256(manifest).hexdigest())


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda path: (path / "model.bin").write_bytes(b"weights?"), "model.bin has another content"),
        (lambda path: (path / "model.bin").write_bytes(b"weight"), "model.bin has another size"),
        (lambda path: (path / "model.bin").unlink(), "model.bin is missing"),
        (lambda path: (path / "manifest.json").unlink(), "it has no manifest"),
        (lambda path: (path / "manifest.json").write_text('{"step": 1'), "its manifest is not a JSON object"),
        (lambda path: (path / "manifest.json").write_text("[" * 100_000), "its manifest is not a JSON object"),
        (lambda path: change_manifest(path, lambda m: m.update(step=99)), "its manifest speaks of another step"),
        (lambda path: change_manifest(path, lambda m: m.update(step=True)), "its manifest speaks of another step"),
        (lambda path: change_manifest(path, lambda m: m.update(files=[])), "its manifest lists no files"),
        (lambda path: change_manifest(path, lambda m: m.update(files=["x"])), "its manifest lists an unsafe path"),
        (
            lambda path: change_manifest(path, lambda m: m["files"].append(m["files"][0])),
            "its manifest lists a file twice",
        ),
        (
            lambda path: change_manifest(path, lambda m: m["files"][0].update(path="../../x")),
            "its manifest lists an unsafe path",
        ),
        (
            lambda path: change_manifest(path, lambda m: m["files"][0].update(path="/etc/passwd")),
            "its manifest lists an unsafe path",
        ),
        (
            lambda path: change_manifest(path, lambda m: m["files"][0].update(size="8")),
            "its manifest is malformed at model.bin",
        ),
    ],
)
def test_a_checkpoint_that_is_not_as_its_manifest_says_is_not_verified(
    tmp_path: Path, spoil: Callable[[Path], object], problem: str
) -> None:
    path = write_checkpoint(tmp_path, 100)
    spoil(path)
    found = checkpoints.check(path)
    assert not found.verified
    assert found.problem == problem


def test_symlinks_are_never_followed(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 100)
    (path / "model.bin").rename(tmp_path / "elsewhere")
    (path / "model.bin").symlink_to(tmp_path / "elsewhere")
    assert checkpoints.check(path).problem == "model.bin is missing"


def test_the_newest_verified_checkpoint_goes_by_step_and_passes_over_unfinished_and_flawed_ones(tmp_path: Path) -> None:
    assert checkpoints.newest_verified(tmp_path / "nothing") is None
    for step in (900, 1000, 20000):
        write_checkpoint(tmp_path, step)
    (tmp_path / "step-00020000/model.bin").unlink()
    write_checkpoint(tmp_path, 30000).rename(tmp_path / ".step-00030000")
    (tmp_path / "step-99999999").symlink_to(tmp_path / "step-00000900")
    newest = checkpoints.newest_verified(tmp_path)
    assert newest is not None
    assert newest.name == "step-00001000"
