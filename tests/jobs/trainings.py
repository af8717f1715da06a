"""Runs a training as its users do, in a process of its own: the same for all frameworks, for they keep one contract."""

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.warm import Warm

ROOT = Path(__file__).resolve().parents[2]
GPT = ROOT / "jobs" / "gpt"
# a model that learns in a second; each test adds what it is about
TINY = (
    *("--context", "16", "--width", "8", "--mlp", "16", "--heads", "2", "--layers", "2", "--batch", "4"),
    *("--steps", "40", "--eval-every", "10", "--eval-batch", "8", "--length", "12", "--checkpoint-every", "10"),
    *("--lr", "0.01", "--threads", "1"),
)
WAIT_SECONDS = 300  # only ever reached by what hangs; a busy machine takes its time


def python_with(*modules: str, of: str = ".venv-frameworks") -> str:
    """The Python of an environment, or that of TPUFLEET_JOBS_PYTHON; where it lacks a module the test is skipped."""
    python = os.environ.get("TPUFLEET_JOBS_PYTHON", str(ROOT / of / "bin" / "python"))
    for module in modules:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        try:
            found = subprocess.run([python, "-c", code], check=False, timeout=WAIT_SECONDS).returncode == 0
        except OSError:
            found = False
        if not found:
            pytest.skip(f"{python} has no {module}: `make test` makes one, TPUFLEET_JOBS_PYTHON names another")
    return python


def load_module(name: str) -> ModuleType:
    """A module of jobs/gpt that needs no torch, without putting its plain name on everybody's path."""
    spec = importlib.util.spec_from_file_location(f"gpt_{name}", GPT / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def warm(python: str, *libraries: str) -> Warm:
    """Runs programs where these libraries are imported already."""
    return Warm(python, *libraries)


@dataclass(frozen=True)
class Trainings:
    """A `train.py`, the options that make it small, and a home with a small text; nothing is inherited.

    `variables` are its environment's beside what all have. With `libraries`, a program that only has to run to its
    end needn't import those first.
    """

    python: str
    program: Path
    small: tuple[str, ...]
    home: Path
    variables: dict[str, str] = field(default_factory=dict[str, str])
    libraries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)
        self.text.write_text("".join(f'"It is {n} steps," said Holmes.\n' for n in range(200)))

    @property
    def text(self) -> Path:
        return self.home / "text.txt"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        told = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TPUFLEET_CORPUS": str(self.text)}
        return {**told, **self.variables, **(more or {})}

    def beside(self, name: str) -> "Trainings":
        """The same with another program of its directory, as `complete.py`."""
        return replace(self, program=self.program.with_name(name))

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """The program, running."""
        return subprocess.Popen(
            [self.python, str(self.program), *map(str, arguments)],
            cwd=self.home,
            env=self.environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs the program to its end."""
        if self.libraries:
            words = [str(self.program), *map(str, arguments)]
            env = self.environment(environment)
            return warm(self.python, *self.libraries).run(words, cwd=self.home, env=env, timeout=WAIT_SECONDS)
        with self.start(*arguments, **environment) as process:
            try:
                out, err = process.communicate(timeout=WAIT_SECONDS)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def train(self, out: Path, *options: str | Path, **environment: str) -> str:
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
        return refusal(self.run(*self.small, *options, **environment), code)


def refusal(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one sentence that a program ended with instead of doing what it was asked."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Returns as soon as `condition` holds; fails when it takes too long."""
    deadline = time.monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        pause.wait(0.005)


def records(directory: Path, name: str = "metrics") -> list[dict[str, object]]:
    """The whole lines of a record file so far."""
    file = directory / f"{name}.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def losses(directory: Path) -> list[tuple[object, object, object]]:
    """(step, train loss, test loss) of every evaluation, exact to the last bit."""
    return [(r["step"], r.get("train_loss"), r["test_loss"]) for r in records(directory)]


def checkpoints(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


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
