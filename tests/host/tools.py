"""A host's directory with chips, leases and people, and the two tools as a person calls them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from .harness import PYTHON, alive, environment_of, kill, living_pids, wait_until

TOOLS = Path(__file__).resolve().parents[2] / "tpufleet/host/tools"
SLEEP = ("sleep", "600")


class Called(subprocess.Popen[str]):
    """A tool that somebody called. A test that fails doesn't wait for it."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


class Desk:
    """People at a host. What they start is killed by `clear`."""

    def __init__(self, directory: Path, chips: int = 4) -> None:
        self.root = directory / "root"
        self.home = directory / "home"
        self.bin = self.root / "usr/local/bin"
        for folder in (self.home, self.bin, self.root / "dev", self.leases, self.base):
            folder.mkdir(parents=True)
        for chip in range(chips):
            (self.root / f"dev/accel{chip}").touch()
            self.lease(chip).touch()
        for tool in ("chips", "on-chip"):
            shutil.copy(TOOLS / f"{tool.replace('-', '_')}.py", self.bin / tool)
            (self.bin / tool).chmod(0o755)
        self.sit()

    @property
    def base(self) -> Path:
        return self.root / "var/lib/tpufleet"

    @property
    def leases(self) -> Path:
        return self.root / "run/tpufleet/leases"

    def lease(self, chip: int) -> Path:
        return self.leases / f"chip-{chip}.lock"

    def device(self, chip: int) -> Path:
        return self.root / f"dev/accel{chip}"

    def sit(self, seats: Mapping[str, Sequence[int]] | None = None, hosts: Sequence[str] = ("tpu-0-w0",)) -> None:
        """Who has which seat, as the operator tells the host."""
        people = [
            {"name": name, "uid": 20000 + n, "seat": list(seat), "since": "2026-11-21T13:00:00Z", "state": "here"}
            for n, (name, seat) in enumerate((seats or {}).items())
        ]
        said = {"fleet": "sherlock", "host": "tpu-0-w0", "operator": "op", "people": people}
        said["hosts"] = [{"name": name, "address": "127.0.0.1", "port": 22} for name in hosts]
        (self.base / "people.json").write_text(json.dumps(said))

    def env(self, user: str, **more: str) -> dict[str, str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        names = {"PATH": path, "HOME": str(self.home), "USER": user, "TPUFLEET_HOST_ROOT": str(self.root)}
        return {**names, **more}

    def start(
        self, tool: str, *words: str, user: str = "ada", env: Mapping[str, str] | None = None, **options: Any
    ) -> Called:
        options.setdefault("cwd", self.home)
        return Called(
            [PYTHON, "-IS", str(self.bin / tool), *words],
            env=self.env(user, **(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def call(self, tool: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        with self.start(tool, *words, **options) as process:
            out, err = process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def on_chip(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.call("on-chip", *words, **options)

    def busy(self, *words: str, **options: Any) -> Called:
        """An on-chip whose command has begun."""
        before = set(self.runs())
        process = self.start("on-chip", *words, **options)
        wait_until(lambda: process.poll() is not None or self._begun(before), "the command has begun")
        assert process.poll() is None, process.communicate()
        return process

    def _begun(self, before: set[str]) -> bool:
        return any(self.of_run(run) for run in set(self.runs()) - before)

    def chips(self) -> list[dict[str, Any]]:
        return json.loads(self.call("chips", "--here", "--json").stdout)["chips"]

    def states(self) -> list[str]:
        return [chip["state"] for chip in self.chips()]

    def runs(self) -> list[str]:
        """The ids of the runs, in order; only those that are written down."""
        return sorted(path.parent.name for path in self.home.glob("runs/*/run.json"))

    def run(self, run: str) -> dict[str, Any]:
        return json.loads((self.home / "runs" / run / "run.json").read_text())

    def of_run(self, run: str) -> list[int]:
        """The processes of a run: they have it in their environment."""
        mark = f"TPUFLEET_RUN_DIR={self.home}/runs/{run}".encode()
        return [pid for pid in living_pids() if mark in environment_of(pid)]

    def clear(self) -> None:
        mark = f"TPUFLEET_HOST_ROOT={self.root}".encode()
        for pid in [pid for pid in living_pids() if mark in environment_of(pid)]:
            kill(pid)
            wait_until(lambda pid=pid: not alive(pid), "it is dead")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.clear()


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=30)
    return process.returncode, err
