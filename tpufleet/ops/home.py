"""The runs' files at home: `artifacts/FLEET/runs/RUN/…`, what is there already, and what is written beside it.

Whatever a host says of names and sizes is checked here before a path is made of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpufleet.errors import HostFault
from tpufleet.host.checkpoints import names as checkpoint_names, newest_verified
from tpufleet.host.files import safe_relative
from tpufleet.names import RunId, shown
from tpufleet.paths import write_atomically
from tpufleet.restart import FINAL_STATES, State

GROWING = "log.txt"  # only ever appended to, so that its tail is enough
OURS = "run.json"  # written here: an artifact of that name stays on the host
PARTS = ".parts"
OLDER = ".older"
INDEX = ".collected.json"


@dataclass(frozen=True)
class Wanted:
    """Bytes to fetch: `path` of `run` from `offset`, `size` in all; they are appended to `part`."""

    run: str
    path: str
    offset: int
    size: int
    part: Path
    mtime_ns: int = 0
    sha256: str | None = None


@dataclass
class RunHome:
    """One run's directory at home.

    `collected` remembers size and mtime on the host of each file that is here, `log_cut` how much had been cut out of
    the log that is here, `told` the broken checkpoints that people were told of, `mirrored` the last moment of which
    all is here that the host had then (Unix time).
    """

    directory: Path
    life: str
    collected: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    log_cut: int = 0
    told: list[str] = field(default_factory=list[str])
    mirrored: float = 0.0
    log_cut_there: int = 0

    @classmethod
    def open(cls, runs: Path, state: Mapping[str, Any]) -> RunHome:
        """The home of a run that has begun. What an earlier life of the same run left (it was done again from the
        start, on a new fleet perhaps) is moved to `earlier/`, never mixed with this one and never lost."""
        try:
            directory = runs / RunId(state["id"])
        except ValueError as error:
            raise HostFault(f"a run has an impossible name: {error}", kind="bad-name") from error
        life = str(state.get("began") or state["attempts"][0]["started"])
        index = _index(directory)
        if index.get("life") != life:
            if _holds_anything(directory):
                _move_aside(directory, runs.parent / "earlier")
            index = {}
        home = cls(directory, life, **_known(index))
        if not index:
            directory.mkdir(parents=True, exist_ok=True)
            home.write_index()  # whose life it is must be known before the first byte comes
        return home

    def wanted(self, entry: Mapping[str, Any]) -> Wanted | None:
        """What is missing of a plain file (log, metrics, completions, artifacts); None when nothing is."""
        path, size, mtime = safe(str(entry["path"])), int(entry["size"]), int(entry["mtime_ns"])
        target = self.directory / path
        here = target.stat().st_size if target.is_file() else -1
        if path == OURS or (here == size and self.collected.get(path) == [size, mtime]):
            return None
        if path == GROWING and 0 <= here <= size and self.log_cut == self.log_cut_there:
            return Wanted(self.directory.name, path, here, size, target, mtime) if here < size else None
        part = self._part(path)
        part.unlink(missing_ok=True)
        return Wanted(self.directory.name, path, 0, size, part, mtime)

    def wanted_of_checkpoint(self, checkpoint: Mapping[str, Any]) -> list[Wanted]:
        """What is missing of a verified checkpoint; an empty list when it is home, whole and the same."""
        folder = safe(f"checkpoints/{checkpoint['name']}")
        manifest = self.directory / folder / "manifest.json"
        digests = {str(entry["path"]): str(entry["sha256"]) for entry in checkpoint["files"]}
        if manifest.is_file() and _sha256(manifest) == digests.get("manifest.json"):
            return []
        wanted: list[Wanted] = []
        for entry in checkpoint["files"]:
            path = safe(f"{folder}/{entry['path']}")
            part = self._part(f"{_folder_of_parts(checkpoint)}/{safe(str(entry['path']))}")
            size = int(entry["size"])
            here = part.stat().st_size if part.is_file() else 0
            if here > size:
                part.unlink()
                here = 0
            wanted.append(Wanted(self.directory.name, path, here, size, part, sha256=str(entry["sha256"])))
        return wanted

    def forget_parts(self, offered: Iterable[Mapping[str, Any]]) -> None:
        """Remove what was begun of checkpoints that the host doesn't offer any more: the job keeps its newest, or
        went on from an earlier one and wrote them anew."""
        kept = {_folder_of_parts(checkpoint) for checkpoint in offered}
        for left in (self.directory / PARTS / "checkpoints").glob("*"):
            if f"checkpoints/{left.name}" not in kept:
                shutil.rmtree(left, ignore_errors=True)

    def finish(self, item: Wanted) -> None:
        """A plain file has arrived: put it in its place and remember what it is a copy of."""
        target = self.directory / item.path
        if item.part != target:
            make_way(self.directory, target)
            item.part.replace(target)
        self.collected[item.path] = [target.stat().st_size, item.mtime_ns]
        if item.path == GROWING:
            self.log_cut = self.log_cut_there

    def finish_checkpoint(self, checkpoint: Mapping[str, Any], items: Sequence[Wanted]) -> None:
        """All files of a checkpoint have arrived: verify each, then show the whole at once by renaming it.

        A file that is not as its manifest says is removed, so that the next try fetches it again: HostFault.
        """
        for item in items:
            if item.part.stat().st_size != item.size or _sha256(item.part) != item.sha256:
                item.part.unlink()
                raise HostFault(
                    f"{item.path} of {item.run} arrived damaged", kind="damaged", hint="run the same command again"
                )
        folder = safe(f"checkpoints/{checkpoint['name']}")
        target = self.directory / folder
        older = self._part(f"{folder}{OLDER}")
        shutil.rmtree(older, ignore_errors=True)
        if target.is_dir():  # written anew by the job: never half of it is seen
            target.rename(older)
        make_way(self.directory, target)
        self._part(_folder_of_parts(checkpoint)).replace(target)
        shutil.rmtree(older, ignore_errors=True)

    def write_state(self, state: Mapping[str, Any]) -> None:
        write_json(self.directory / "run.json", state)

    def write_index(self) -> None:
        """Remember what is here; the directory of parts goes when nothing is left in it."""
        for folder, _, _ in os.walk(self.directory / PARTS, topdown=False):
            with contextlib.suppress(OSError):  # not empty: a part that waits for the next try
                Path(folder).rmdir()
        known = {"log_cut": self.log_cut, "told": self.told, "mirrored": self.mirrored}
        write_json(self.directory / INDEX, {"life": self.life, "files": self.collected, **known})

    def to_restore(self) -> list[tuple[str, Path]]:
        """What another host must have so that the run goes on there as if it had been there before: its files, and
        the newest checkpoint that is as its manifest says. Paths below the run's directory, and where they are."""
        paths = [path for path in sorted({*self.collected, GROWING}) if safe_relative(path)]
        checkpoint = newest_verified(self.directory / "checkpoints")
        if checkpoint:
            inside = [file.relative_to(self.directory) for file in sorted(checkpoint.rglob("*")) if file.is_file()]
            paths += [str(path) for path in inside]
        return [(path, self.directory / path) for path in paths if (self.directory / path).is_file()]

    def _part(self, path: str) -> Path:
        part = self.directory / PARTS / path
        part.parent.mkdir(parents=True, exist_ok=True)
        return part


def before_all_is_home(state: Mapping[str, Any]) -> dict[str, Any]:
    """A run's state as it is kept while files of it may be missing here: done, it is `incomplete`, since without them
    nothing is done once its host is gone."""
    missing = state["state"] == State.DONE and bool(state.get("attempts"))
    return {**state, "incomplete": True} if missing else dict(state)


def is_over(state: Mapping[str, Any]) -> bool:
    """Whether a run needs nothing any more: it has ended, and if it is done all that it left is home."""
    return state["state"] in FINAL_STATES and not state.get("incomplete")


def make_way(directory: Path, target: Path) -> None:
    """What stands below `directory` where `target` goes is an older copy of the same; a job may turn a file into a
    folder."""
    for parent in target.relative_to(directory).parents:
        if (directory / parent).is_file():
            (directory / parent).unlink()
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)


def safe(path: str) -> str:
    """`path` if it is a plain relative one that stays where it belongs; raises HostFault for any other."""
    if not safe_relative(path):
        raise HostFault(f"a host offers a file of an impossible name: {shown(path)}", kind="bad-name")
    return path


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(), mode=0o644)


def mirrored_step(directory: Path) -> int | None:
    """The step of the newest checkpoint that is home: what is not lost any more; None while there is none."""
    steps = [int(name.removeprefix("step-")) for name in checkpoint_names(directory / "checkpoints")]
    return max(steps, default=None)


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The runs of an earlier collect; none when there was none, or its file is broken (it is written anew)."""
    try:
        document = json.loads(path.read_text())
        return [run for run in document["runs"] if isinstance(run, dict) and "id" in run]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _folder_of_parts(checkpoint: Mapping[str, Any]) -> str:
    """Where a checkpoint arrives; another for one of the same step and other content (`wanted_of_checkpoint`)."""
    name = safe(f"checkpoints/{checkpoint['name']}")
    manifest = next((entry["sha256"] for entry in checkpoint["files"] if entry["path"] == "manifest.json"), "")
    return safe(f"{name}.{str(manifest)[:16]}")


def _index(directory: Path) -> dict[str, Any]:
    try:
        index: Any = json.loads((directory / INDEX).read_text())
        return {**index, "life": str(index["life"]), "files": dict(index["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _known(index: Mapping[str, Any]) -> dict[str, Any]:
    """An index as the fields of a RunHome."""
    fields = {name: index[name] for name in ("log_cut", "told", "mirrored") if name in index}
    return {"collected": index.get("files", {}), **fields}


def last_mirrored(directory: Path) -> float:
    """When a run's files last came home, in Unix time; 0 for never."""
    return float(_index(directory).get("mirrored", 0.0))


def _holds_anything(directory: Path) -> bool:
    """Whether a life has left something here; a command that is killed early leaves a directory without anything."""
    return directory.is_dir() and any(INDEX not in entry.name for entry in directory.iterdir())


def _move_aside(directory: Path, earlier: Path) -> None:
    earlier.mkdir(parents=True, exist_ok=True)
    number = next(n for n in itertools.count(1) if not (earlier / f"{directory.name}.{n}").exists())
    directory.rename(earlier / f"{directory.name}.{number}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
