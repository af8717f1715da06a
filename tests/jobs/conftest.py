"""Runs the training job as its users do: a process of its own, with the Python that has PyTorch."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPT = ROOT / "jobs" / "gpt"
# a model that learns in a second; each test adds what it is about
TINY = [
    *("--context", "16", "--width", "8", "--mlp", "16", "--heads", "2", "--layers", "2", "--batch", "4"),
    *("--steps", "40", "--eval-every", "10", "--eval-batch", "8", "--length", "12", "--checkpoint-every", "10"),
    *("--lr", "0.01", "--threads", "1"),
]
WAIT_SECONDS = 300  # only ever reached by what hangs; a busy machine takes its time


def load_module(name: str) -> ModuleType:
    """A module of the job that needs no torch, without putting its plain name on everybody's path."""
    spec = importlib.util.spec_from_file_location(f"gpt_{name}", GPT / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


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


@dataclass(frozen=True)
class Job:
    """The job's programs, run with the Python that has torch, on a small text, nothing inherited."""

    python: str
    corpus: Path
    home: Path

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TPUFLEET_CORPUS": str(self.corpus), **(more or {})}

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Starts a program (`train.py`, `complete.py`) in the home directory."""
        program, *rest = map(str, arguments)
        return subprocess.Popen(
            [self.python, str(GPT / program), *rest],
            cwd=self.home,
            env=self.environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end."""
        with self.start(*arguments, **environment) as process:
            try:
                out, err = process.communicate(timeout=WAIT_SECONDS)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def train(self, out: Path, *options: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """A tiny training into `out`, which must succeed without a word on stderr."""
        done = self.run("train.py", *TINY, "--out", out, *options, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done

    def train_and_signal(self, out: Path, number: signal.Signals, after: int, *options: str) -> int:
        """A tiny training without end, signalled when it has reported step `after`; returns the exit code."""
        with self.start("train.py", *TINY, "--steps", "1000000", "--out", out, *options) as process:
            try:
                reached = lambda: any(int(str(r["step"])) >= after for r in records(out))  # noqa: E731
                wait_until(lambda: reached() or process.poll() is not None, f"step {after}")
                process.send_signal(number)
                process.communicate(timeout=WAIT_SECONDS)
            finally:
                process.kill()
        return process.returncode


@pytest.fixture(scope="session")
def jobs_python() -> str:
    """A Python with torch; the tests that need it are skipped where there is none."""
    python = os.environ.get("TPUFLEET_JOBS_PYTHON", str(ROOT / ".venv-jobs" / "bin" / "python"))
    has_torch = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        found = subprocess.run([python, "-c", has_torch], check=False, timeout=WAIT_SECONDS).returncode == 0
    except OSError:
        found = False
    if not found:
        pytest.skip(f"{python} has no torch; `make setup` makes one, TPUFLEET_JOBS_PYTHON names another")
    return python


@pytest.fixture
def job(jobs_python: str, tmp_path: Path) -> Job:
    return make_job(jobs_python, tmp_path / "home")


@pytest.fixture(scope="session")
def trained(jobs_python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    """A finished tiny training, run as the fleet would; to be looked at and never changed.

    What it printed is in `log.txt`.
    """
    home = tmp_path_factory.mktemp("trained")
    job, out = make_job(jobs_python, home / "home"), home / "out"
    done = job.train(home / "unused", TPUFLEET_RUN_DIR=str(out))
    (out / "log.txt").write_text(done.stdout)
    return job, out


def make_job(python: str, home: Path) -> Job:
    home.mkdir()
    corpus = home / "text.txt"
    corpus.write_text("".join(f'"It is {n} steps," said Holmes.\n' for n in range(200)))
    return Job(python, corpus, home)
