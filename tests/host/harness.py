"""A host of our own: a temporary root with device files, the shipped directory, and real processes on it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

PYTHON = os.environ.get("TPUFLEET_TEST_HOST_PYTHON", sys.executable)
DEADLINE_S = 30.0


def wait_until(condition: Callable[[], Any], what: str = "the condition", deadline_s: float = DEADLINE_S) -> Any:
    """What `condition` gives as soon as it is true; fails the test after the deadline."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {deadline_s:.0f} s: {what}")


class Host:
    """A host and its agent, called as it is over SSH: a fresh process per verb."""

    def __init__(self, root: Path, library: Path, chips: int = 4) -> None:
        self.root = root
        self.library = library
        self.base = root / "var/lib/tpufleet"
        (root / "dev").mkdir(parents=True)
        (root / "tmp").mkdir()
        (root / "home").mkdir()
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        for chip in range(chips):
            (root / f"dev/accel{chip}").touch()
        self.reboot()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "home"),
            "USER": "operator",
            "TMPDIR": str(root / "tmp"),
            "TPUFLEET_HOST_ROOT": str(root),
        }

    def reboot(self) -> None:
        """A new boot id, all processes gone, and nothing left in /run."""
        self.kill_everything()
        shutil.rmtree(self.root / "run", ignore_errors=True)
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{uuid.uuid4()}\n")

    def start(self, verb: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [PYTHON, "-ES", str(self.library), verb, *words],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def raw(self, verb: str, request: object = None) -> tuple[int, bytes]:
        """Exit code and stdout of a verb; nothing may be said on stderr."""
        with self.start(verb) as process:
            out, err = process.communicate(json.dumps(request or {}).encode(), timeout=60)
        assert err == b"", err.decode()
        return process.returncode, out

    def call(self, verb: str, **request: object) -> dict[str, Any]:
        code, out = self.raw(verb, request)
        assert code == 0, out.decode()
        return json.loads(out)

    def error(self, verb: str, **request: object) -> dict[str, str]:
        code, out = self.raw(verb, request)
        assert code == 1, out.decode()
        return json.loads(out)["error"]

    def spec(self, run: str, script: str | None = None, **fields: Any) -> dict[str, Any]:
        """A RunSpec for a Python script given as text."""
        command = [PYTHON, "-c", script] if script is not None else ["true"]
        spec = {
            "id": run,
            "job": "gpt",
            "fleet": "sherlock",
            "host": "tpu-0-w0",
            "command": command,
            "submitted": "2026-11-21T04:00:00.000Z",
        }
        return {**spec, **fields}

    def enqueue(self, *specs: dict[str, Any], **request: object) -> list[dict[str, Any]]:
        return self.call("enqueue", runs=list(specs), **request)["runs"]

    def run_dir(self, run: str) -> Path:
        return self.base / "runs" / run

    def control(self, run: str) -> Path:
        return self.base / "control" / run

    def state(self, run: str) -> dict[str, Any]:
        return json.loads((self.control(run) / "state.json").read_text())

    def handle(self, run: str) -> dict[str, Any]:
        return json.loads((self.control(run) / "handle.json").read_text())

    def wait_for(self, run: str, *states: str) -> dict[str, Any]:
        """The run's state once it is one of `states`."""

        def there() -> dict[str, Any] | None:
            state = self.state(run)
            return state if state["state"] in states else None

        try:
            return wait_until(there, f"{run} to be {states}")
        except AssertionError as error:
            log = self.base / "queue.log"
            said = log.read_text() if log.exists() else ""
            raise AssertionError(f"{error}: {self.state(run)}\n{said}") from None

    def log(self, run: str) -> str:
        return (self.run_dir(run) / "log.txt").read_text()

    def processes(self) -> list[int]:
        """The living processes of this host."""
        mark = f"TPUFLEET_HOST_ROOT={self.root}".encode()
        return [pid for pid in living_pids() if mark in environment_of(pid)]

    def worker(self) -> int | None:
        """The pid of the queue's worker."""
        for pid in self.processes():
            if b"work" in words_of(pid)[3:4]:
                return pid
        return None

    def kill_everything(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (pids := self.processes()) and time.monotonic() < deadline:
            for pid in pids:
                kill(pid)


def living_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and alive(int(path.name))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
