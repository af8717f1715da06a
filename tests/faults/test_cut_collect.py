"""A checkpoint's way home, cut at the byte: the second try ends whole, sends what is missing, touches nothing good.

A real sshd behind a line that ends where the test says (tests/faults/proxy.py); through the whole command line.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.proxy import End, Line, Proxy, Way, proxied
from tests.project import Project, missing
from tests.ssh.servers import SSHD, OpenSsh
from tpufleet.ssh.keys import ensure_key

pytestmark = pytest.mark.skipif(SSHD is None or missing("ssh") is not None, reason="OpenSSH is not installed")

MODEL = 1_000_000  # bytes of a checkpoint
BEFORE, AFTER = 300, 300  # what comes down before its first byte, once the fetch has begun, and after its last
RATE = 3_000_000  # bytes per second: what a reset finds unread in a socket is lost, so the reader must keep up
FRAME = 1.02  # what SSH adds to what it carries
STEP = "checkpoints/step-00000010"
JOB = f"""\
import hashlib, json, os, pathlib
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
aside = run / "checkpoints/.step-00000010"
aside.mkdir(parents=True)
data = os.urandom({MODEL})
(aside / "model.bin").write_bytes(data)
files = [{{"path": "model.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}}]
(aside / "manifest.json").write_text(json.dumps({{"step": 10, "files": files}}))
aside.rename(run / "{STEP}")
print("saved")
"""


@dataclass
class Collected:
    """How a collect ended, its JSON, and how many bytes came down the line."""

    exit_code: int
    answer: dict[str, Any]
    down: int
    stderr: str


@dataclass
class Far:
    """A project with two runs on one host at the end of a `line`: `saves-seed0`, which is home, and `saves-seed1`.

    `idle` and `full` are the bytes that come down the line when nothing is missing, and when `saves-seed1` is.
    """

    project: Project
    server: OpenSsh
    line: Proxy
    idle: int = 0
    full: int = 0

    @property
    def good(self) -> Path:
        return self.project.directory / "artifacts/sherlock/runs/saves-seed0"

    @property
    def run(self) -> Path:
        return self.good.with_name("saves-seed1")

    @property
    def parts(self) -> list[Path]:
        return [path for path in sorted(self.run.glob(".parts/checkpoints/*/*")) if path.is_file()]

    def there(self, path: str) -> Path:
        return self.server.root / "var/lib/tpufleet/runs/saves-seed1" / path

    def sizes(self) -> dict[str, int]:
        names = ("log.txt", f"{STEP}/model.bin", f"{STEP}/manifest.json")
        return {name: self.there(name).stat().st_size for name in names}

    def collect(self, *words: str, line: Line | None = None) -> Collected:
        self.line.coming = [line] if line else []
        done = self.project.run("--json", "collect", *words, ok=False)
        if line:
            assert self.line.wires[-1].happened.is_set(), "the line was not cut"
        return Collected(
            done.exit_code, json.loads(done.stdout.splitlines()[0]), self.line.wires[-1].passed[Way.DOWN], done.stderr
        )

    def is_whole(self) -> None:
        """All that the run left is home, byte for byte, and nothing lies beside it."""
        for name in self.sizes():
            assert (self.run / name).read_bytes() == self.there(name).read_bytes()
        assert not (self.run / ".parts").exists()
        assert "incomplete" not in json.loads((self.run / "run.json").read_text())


def marks(folder: Path) -> dict[Path, tuple[int, int]]:
    """Inode and modification time of all that was collected in a run's directory; by these one sees a touch."""
    collected = [
        path for path in folder.rglob("*") if path.is_file() and path.name not in ("run.json", ".collected.json")
    ]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in collected}


def flip(file: Path, *, at: int, later: bool) -> None:
    """One byte becomes another one; `later`: as by a write, which shows in the file's time."""
    before = file.stat()
    with file.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([byte ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + (10**9 if later else 0)))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    top = tmp_path_factory.mktemp("cut")
    project = Project.make(top / "project")
    project.env = {"HOME": str(top)}
    (project.directory / "code/saves.py").write_text(JOB)
    project.commit("A job that saves")
    key = ensure_key(project.directory / "key")
    server = OpenSsh(top)
    try:
        server.authorized.write_text(key + "\n")
        (server.root / "dev").mkdir()
        for chip in range(4):
            (server.root / f"dev/accel{chip}").touch()
        with proxied(server.port) as (line,):
            (project.directory / "tpufleet.yaml").write_text(
                "fleet: sherlock\ncloud:\n  provider: inventory\n  hosts:\n"
                f"    - {{name: tpu-0, address: 127.0.0.1, port: {line.port}, accelerator: v2-8,"
                f" user: {server.user}, host_key: {server.host_line}}}\n"
                "ssh: {key: key}\ncode: {repo: code}\n"
                'jobs:\n  saves: {command: [python3, saves.py, "{seed}"], grid: {seed: [0, 1]}}\n'
            )
            project.run("create")
            project.run("run", "saves", "--follow")
            far = Far(project, server, line)
            project.run("collect")
            far.idle = far.collect().down
            shutil.rmtree(far.run)
            far.full = far.collect().down
            yield far
    finally:
        server.stop()


@pytest.fixture
def far(host: Far) -> Iterator[Far]:
    """One run is home and stays untouched; nothing of the other one is."""
    shutil.rmtree(host.run, ignore_errors=True)
    before = marks(host.good)
    assert len(before) == 3
    yield host
    assert marks(host.good) == before, "what was home and good was touched"


SEEDS = [seed if seed == 0 else pytest.param(seed, marks=pytest.mark.faults) for seed in range(20)]


@pytest.mark.parametrize("percent", [0, 1, 50, 99, 100])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_checkpoint_that_was_cut_is_taken_up_at_the_byte(far: Far, percent: int, seed: int) -> None:
    dice = random.Random(f"{percent} {seed}")  # noqa: S311 - a repeatable choice, no secret
    at = cut_at(far, percent) + dice.randrange(-2_000, 2_000) * (percent not in (0, 100))
    cut = far.collect(line=Line(rate=RATE, end=dice.choice([End.RESET, End.CLOSED]), at=at))
    came = sum(part.stat().st_size for part in far.parts)
    assert came <= MODEL * percent / 100 + 4_000
    assert percent < 50 or came or (far.run / STEP).exists()
    if percent < 100:
        assert cut.exit_code == 6, cut.stderr
        assert not (far.run / STEP).exists(), "half a checkpoint is none"
        assert ("saves-seed1", "step-00000010") in [(item["run"], item["what"]) for item in cut.answer["missing"]]
    begun = marks(far.run)
    missing = sum(far.sizes().values()) - sum(size_at_home(far).values())
    again = far.collect()
    assert again.exit_code == 0, again.stderr
    assert (again.answer["bytes"], again.answer["missing"], again.answer["problems"]) == (missing, [], [])
    assert again.down <= far.idle + missing * FRAME + 4_000, "what was home travelled again"
    far.is_whole()
    kept = [path for path in begun if ".parts" not in path.parts and begun[path] != marks(far.run).get(path)]
    assert kept == [], "a file that was whole was touched"


def cut_at(far: Far, percent: int) -> int:
    """After how many bytes of the line so much of the checkpoint has come down; at 100 all but the farewell has."""
    begin, end = far.idle + BEFORE, far.full - AFTER
    return begin + (end - begin) * percent // 100


def size_at_home(far: Far) -> dict[str, int]:
    """How much of each file of the run is here."""
    files = {name: far.run / name for name in far.sizes()}
    files |= {f"{STEP}/{part.name}": part for part in far.parts if not files[f"{STEP}/{part.name}"].exists()}
    return {name: path.stat().st_size for name, path in files.items() if path.exists()}


def test_one_flipped_byte_in_what_had_come_is_found_and_the_second_try_ends_whole_all_the_same(far: Far) -> None:
    far.collect(line=Line(rate=RATE, end=End.CLOSED, at=cut_at(far, 50)))
    (part,) = far.parts
    missing = sum(far.sizes().values()) - sum(size_at_home(far).values())
    flip(part, at=part.stat().st_size // 2, later=False)
    again = far.collect()
    assert again.exit_code == 0, again.stderr
    assert again.answer["bytes"] == missing + MODEL, "the rest, then all of the file that was damaged"
    far.is_whole()


@pytest.mark.parametrize(("later", "words"), [(True, []), (False, ["--verify"])])
def test_one_flipped_byte_in_a_checkpoint_at_home_is_found_and_only_that_file_comes_again(
    far: Far, later: bool, words: list[str]
) -> None:
    far.collect()
    manifest = marks(far.run)[far.run / STEP / "manifest.json"]
    flip(far.run / STEP / "model.bin", at=MODEL // 3, later=later)
    again = far.collect(*words)
    assert again.exit_code == 0, again.stderr
    assert again.answer["bytes"] == MODEL
    far.is_whole()
    assert marks(far.run)[far.run / STEP / "manifest.json"] == manifest


@pytest.mark.faults
def test_what_is_damaged_at_home_and_gone_from_its_host_is_said(far: Far) -> None:
    far.collect()
    flip(far.run / STEP / "model.bin", at=0, later=False)
    there = far.there(STEP)
    there.rename(there.with_name(".aside"))
    try:
        damaged = far.collect("--verify")
        said: Any = {
            "run": "saves-seed1",
            "what": "step-00000010",
            "why": "damaged at home, and its host has it no more",
        }
        assert said in damaged.answer["missing"]
        assert damaged.exit_code == 6
    finally:
        there.with_name(".aside").rename(there)
    assert far.collect("--verify").answer["bytes"] == MODEL
    far.is_whole()
