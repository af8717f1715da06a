"""The runs' files at home: `artifacts/FLEET/runs/RUN/…`, what is there already, and what is written beside it.

Whatever a host says of names and sizes is checked here before a path is made of it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpufleet.errors import HostFault
from tpufleet.host.checkpoints import MANIFEST, names as checkpoint_names, newest_verified
from tpufleet.host.files import safe_relative
from tpufleet.names import RunId, shown
from tpufleet.ops.seals import Seal, is_as, seal_of, sha256_of
from tpufleet.paths import write_atomically
from tpufleet.restart import FINAL_STATES, State

GROWING = "log.txt"  # only ever appended to, so that its tail is enough
OURS = "run.json"  # written here: an artifact of that name stays on the host
PARTS = ".parts"
OLDER = ".older"
INDEX = ".collected.json"
REMEMBERED = ("sealed", "log_cut", "told", "mirrored")


@dataclass(frozen=True)
class Wanted:
    """Bytes to fetch: `path` of `run` from `offset`, `size` in all; they are appended to `part`.

    With a `sha256` the whole must have it, also what was there before; at `offset` == `size` that is known already.
    """

    run: str
    path: str
    offset: int
    size: int
    part: Path
    mtime_ns: int = 0
    sha256: str | None = None

    @property
    def left(self) -> int:
        return self.size - self.offset


@dataclass
class RunHome:
    """One run's directory at home.

    `collected` remembers of each plain file that is here its size and mtime on the host, then its mtime and inode
    here; `sealed` of each checkpoint the digest of its manifest and its files' seals; `log_cut` how much had been cut
    out of the log that is here, `told` the broken checkpoints that people were told of, `mirrored` the last moment of
    which all is here that the host had then (Unix time).
    """

    directory: Path
    life: str
    run: str = ""
    collected: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    sealed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    log_cut: int = 0
    told: list[str] = field(default_factory=list[str])
    mirrored: float = 0.0
    log_cut_there: int = 0

    @classmethod
    def open(cls, runs: Path, state: Mapping[str, Any]) -> RunHome:
        """The home of a run that has begun. What another life of the same run left (it was done again from the start,
        on a new fleet perhaps, or by somebody else) is moved to `earlier/`, never mixed with this one and never lost;
        a life that lies there goes on where it was."""
        directory, life = _place_of(runs, state)
        index = _index(directory)
        if index.get("life") != life:
            before = _laid_aside(directory, life)
            if _holds_anything(directory):
                _move_aside(directory)
            if before:
                shutil.rmtree(directory, ignore_errors=True)
                before.rename(directory)
            index = _index(directory) if before else {}
        home = cls(directory, life, directory.name, **_known(index))
        if not index:
            directory.mkdir(parents=True, exist_ok=True)
            home.write_index()  # whose life it is must be known before the first byte comes
        return home

    @classmethod
    def peek(cls, runs: Path, state: Mapping[str, Any]) -> RunHome:
        """As `open`, for a look that changes nothing."""
        directory, life = _place_of(runs, state)
        here = directory if _index(directory).get("life") == life else _laid_aside(directory, life)
        return cls(here or directory / PARTS / "nothing", life, directory.name, **_known(_index(here) if here else {}))

    def wanted(self, entry: Mapping[str, Any]) -> Wanted | None:
        """What is missing of a plain file (log, metrics, completions, artifacts); None when nothing is.

        Where the host gives its `sha256` (it was asked to), what is here must have it.
        """
        path, size, mtime = safe(str(entry["path"])), int(entry["size"]), int(entry["mtime_ns"])
        if path == OURS:
            return None
        target, digest = self.directory / path, entry.get("sha256")
        seal, known = seal_of(target), self.collected.get(path, [])
        here = seal[0] if seal else -1
        touched = bool(seal) and [here] == known[:1] and known[2:] not in ([], seal[1:])
        damaged = bool(digest) and (here != size or sha256_of(target) != digest)
        part = self._part(path)
        anew = Wanted(self.run, path, 0, size, part, mtime, str(digest) if digest else None)
        if damaged or touched:
            return anew
        if here == size and known[:2] == [size, mtime]:
            return None
        if path == GROWING and 0 <= here <= size and self.log_cut == self.log_cut_there:
            return Wanted(self.run, path, here, size, target, mtime) if here < size else None
        return anew

    def wanted_of_checkpoint(self, checkpoint: Mapping[str, Any], *, verify: bool = False) -> list[Wanted]:
        """What is missing of a verified checkpoint; an empty list when it is home, whole and the same.

        Of one that is home every file is looked at, and read if its seal is broken (all are, to `verify`): those that
        are damaged come again. Files that have come whole are among what is returned; they are read to make sure.
        """
        folder = safe(f"checkpoints/{checkpoint['name']}")
        is_home = self._is_home(checkpoint)
        wanted: list[Wanted] = []
        for entry in checkpoint["files"]:
            path, size, digest = safe(str(entry["path"])), int(entry["size"]), str(entry["sha256"])
            if is_home and self._is_good(str(checkpoint["name"]), path, size, digest, verify=verify):
                continue
            part = self._part(f"{_folder_of_parts(checkpoint)}/{path}")
            seal = seal_of(part)
            here = min(seal[0], size) if seal else 0
            if size and here == size and not is_as(part, size, digest):
                here = 0
            wanted.append(Wanted(self.run, f"{folder}/{path}", here, size, part, sha256=digest))
        return wanted

    def _is_home(self, checkpoint: Mapping[str, Any]) -> bool:
        """Whether the checkpoint of that name here is this one, be it damaged, and not one that was written before."""
        folder = self.directory / safe(f"checkpoints/{checkpoint['name']}")
        if known := self.sealed.get(str(checkpoint["name"])):
            return folder.is_dir() and known.get("manifest") == _manifest_digest(checkpoint)
        manifest = folder / MANIFEST
        return manifest.is_file() and sha256_of(manifest) == _manifest_digest(checkpoint)

    def _is_good(self, name: str, path: str, size: int, digest: str, *, verify: bool) -> bool:
        """Whether a file of a checkpoint that is home is as it should be; read only if it may have changed."""
        file = self.directory / "checkpoints" / name / path
        seals: dict[str, Seal] = self.sealed.get(name, {}).get("files", {})
        seal = seal_of(file)
        return (seal is not None and seals.get(path) == seal and not verify) or is_as(file, size, digest)

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
        size, *here = seal_of(target) or [0, 0, 0]
        self.collected[item.path] = [size, item.mtime_ns, *here]
        if item.path == GROWING:
            self.log_cut = self.log_cut_there

    def finish_checkpoint(self, checkpoint: Mapping[str, Any], items: Sequence[Wanted]) -> None:
        """All files of a checkpoint have arrived, each as its manifest says: show the whole at once by renaming it.

        Of one that was here and damaged, only the files that came again are put in their places.
        """
        for item in items:
            if not item.size:  # never sent: there is nothing to send
                item.part.parent.mkdir(parents=True, exist_ok=True)
                item.part.write_bytes(b"")
        target = self.directory / safe(f"checkpoints/{checkpoint['name']}")
        if self._is_home(checkpoint):
            for item in items:
                make_way(self.directory, self.directory / item.path)
                item.part.replace(self.directory / item.path)
        else:
            self._show(checkpoint, target)
        self.seal(checkpoint)

    def seal(self, checkpoint: Mapping[str, Any]) -> None:
        """Remember a checkpoint that is home and whole, so that its files needn't be read again."""
        folder = self.directory / safe(f"checkpoints/{checkpoint['name']}")
        seals = {str(entry["path"]): seal_of(folder / str(entry["path"])) for entry in checkpoint["files"]}
        self.sealed[str(checkpoint["name"])] = {"manifest": _manifest_digest(checkpoint), "files": seals}

    def _show(self, checkpoint: Mapping[str, Any], target: Path) -> None:
        older = self._part(f"checkpoints/{target.name}{OLDER}")
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
        known = {name: getattr(self, name) for name in REMEMBERED}
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
        return self.directory / PARTS / path


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
    return safe(f"{name}.{_manifest_digest(checkpoint)[:16]}")


def _manifest_digest(checkpoint: Mapping[str, Any]) -> str:
    """What tells a checkpoint from another one of the same step."""
    return next((str(entry["sha256"]) for entry in checkpoint["files"] if entry["path"] == MANIFEST), "")


def _index(directory: Path) -> dict[str, Any]:
    try:
        index: Any = json.loads((directory / INDEX).read_text())
        return {**index, "life": str(index["life"]), "files": dict(index["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _known(index: Mapping[str, Any]) -> dict[str, Any]:
    """An index as the fields of a RunHome."""
    fields = {name: index[name] for name in REMEMBERED if name in index}
    return {"collected": index.get("files", {}), **fields}


def last_mirrored(directory: Path) -> float:
    """When a run's files last came home, in Unix time; 0 for never."""
    return float(_index(directory).get("mirrored", 0.0))


def _place_of(runs: Path, state: Mapping[str, Any]) -> tuple[Path, str]:
    """A run's directory, and by what its lives are told apart. Raises HostFault for a name that is no run's."""
    try:
        directory = runs / RunId(state["id"])
    except ValueError as error:
        raise HostFault(f"a run has an impossible name: {error}", kind="bad-name") from error
    return directory, str(state.get("began") or state["attempts"][0]["started"])


def _holds_anything(directory: Path) -> bool:
    """Whether a life has left something here; a command that is killed early leaves a directory without anything."""
    return directory.is_dir() and any(INDEX not in entry.name for entry in directory.iterdir())


def _laid_aside(directory: Path, life: str) -> Path | None:
    """Where a life of a run lies that made way for another one; None when it never did."""
    kept = (path for path in _earlier(directory).glob(f"{directory.name}.*") if path.suffix[1:].isdigit())
    return next((path for path in kept if path.stem == directory.name and _index(path).get("life") == life), None)


def _earlier(directory: Path) -> Path:
    return directory.parent.parent / "earlier"


def _move_aside(directory: Path) -> None:
    earlier = _earlier(directory)
    earlier.mkdir(parents=True, exist_ok=True)
    number = next(n for n in itertools.count(1) if not (earlier / f"{directory.name}.{n}").exists())
    directory.rename(earlier / f"{directory.name}.{number}")
