"""Runs a training of another framework as its users do; the same for all of them, for they keep one contract."""

import hashlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .conftest import ROOT, WAIT_SECONDS, checkpoints, records, wait_until


def python_with(*modules: str) -> str:
    """The jobs' Python; the test is skipped where one of the modules is not installed for it."""
    python = os.environ.get("TPUFLEET_JOBS_PYTHON", str(ROOT / ".venv-jobs" / "bin" / "python"))
    for module in modules:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        try:
            found = subprocess.run([python, "-c", code], check=False, timeout=WAIT_SECONDS).returncode == 0
        except OSError:
            found = False
        if not found:
            pytest.skip(f"{python} has no {module}; TPUFLEET_JOBS_PYTHON names another Python")
    return python


@dataclass(frozen=True)
class Trainings:
    """A `train.py`, the options that make it small, and a home with a small text; nothing is inherited."""

    python: str
    program: Path
    small: tuple[str, ...]
    home: Path
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def text(self) -> Path:
        return self.home / "text.txt"

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.text.write_text("".join(f'"It is {n} steps," said Holmes.\n' for n in range(200)))

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        told = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TPUFLEET_CORPUS": str(self.text)}
        return subprocess.Popen(
            [self.python, str(self.program), *map(str, arguments)],
            cwd=self.home,
            env={**told, **self.variables, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs the program to its end."""
        with self.start(*arguments, **environment) as process:
            try:
                out, err = process.communicate(timeout=WAIT_SECONDS)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def train(self, out: Path, *options: str, **environment: str) -> str:
        """A small training into `out`, which must succeed without a word on stderr; what it printed."""
        done = self.run(*self.small, "--out", out, *options, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def train_and_signal(self, out: Path, number: signal.Signals, after: int, *options: str) -> int:
        """A small training without end, signalled when it has recorded step `after`; its exit code."""
        with self.start(*self.small, "--steps", "1000000", "--out", out, *options) as process:
            try:
                reached = lambda: any(int(str(r["step"])) >= after for r in records(out))  # noqa: E731
                wait_until(lambda: reached() or process.poll() is not None, f"step {after}")
                process.send_signal(number)
                process.communicate(timeout=WAIT_SECONDS)
            finally:
                process.kill()
        return process.returncode

    def refusal(self, code: int, *options: str | Path, **environment: str) -> str:
        """The one sentence that a small training with these options is refused with."""
        refused = self.run(*self.small, *options, **environment)
        assert refused.returncode == code, refused.stdout + refused.stderr
        assert refused.stderr.count("\n") == 1, refused.stderr
        return refused.stderr


def newest_step(out: Path) -> int:
    return int(checkpoints(out)[-1].removeprefix("step-"))


def check_manifest(checkpoint: Path, step: int) -> None:
    """The checkpoint holds exactly the files of its manifest, each as it says."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert manifest["step"] == step
    assert {path.name for path in checkpoint.iterdir()} == {"manifest.json", *(f["path"] for f in manifest["files"])}
    for file in manifest["files"]:
        data = (checkpoint / file["path"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
