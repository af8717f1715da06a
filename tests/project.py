"""A user's project on the rehearsal cloud: a directory with a fleet file and a git repository, and the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.answers import check_answers
from tests.warm import Warm

FLEET = """\
fleet: {name}
cloud: {{provider: emulator, emulator: {{create_seconds: 0}}}}
nodes:
  - {{name: tpu, count: {count}, accelerator: {accelerator}}}
code: {{repo: code}}
jobs:
{jobs}
"""

# Says what it was given, then waits for a file if it was told of one; a stand-in for any training.
JOB = """\
import json, os, pathlib, sys, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
print("chip", os.environ.get("TPU_VISIBLE_CHIPS"), "argv", sys.argv[1:], flush=True)
gate = os.environ.get("GATE")
deadline = time.monotonic() + 60
while gate and not pathlib.Path(gate).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
with (run / "metrics.jsonl").open("a") as file:
    for step in (1, 2, 3):
        print(json.dumps({"step": step, "test_loss": 3 / step}), file=file)
with (run / "completions.jsonl").open("a") as file:
    print(json.dumps({"step": 3, "prompt": "Elementary, ", "text": "my dear <b>Watson</b>"}), file=file)
print("done", flush=True)
"""

JOBS = """\
  job: {command: [python3, job.py, "{seed}"], grid: {seed: [0, 1, 2, 3]}}
  one: {command: [python3, job.py]}
  fails: {command: [sh, -c, "echo no luck; exit 1"]}
"""


@cache
def warm() -> Warm:
    """Runs tpufleet's command lines where the libraries that they import are there already."""
    return Warm(
        sys.executable, "typer", "yaml", "pydantic", "paramiko", "google.cloud.tpu_v2", "google.auth.transport.requests"
    )


@dataclass
class Done:
    """A command that has ended."""

    words: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    def __post_init__(self) -> None:
        """Whatever a test gets back with `--json` is as the contract says (tpufleet/cli/answers)."""
        if "--json" in self.words[: self.words.index("--")] if "--" in self.words else "--json" in self.words:
            check_answers(self.words, self.stdout)

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@dataclass
class Project:
    directory: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, directory: Path, *, count: int = 1, accelerator: str = "v2-8", jobs: str = JOBS) -> Project:
        directory.mkdir(parents=True, exist_ok=True)
        project = cls(directory)
        text = FLEET.format(name="sherlock", count=count, accelerator=accelerator, jobs=jobs)
        (directory / "tpufleet.yaml").write_text(text)
        code = directory / "code"
        code.mkdir()
        (code / "job.py").write_text(JOB)
        project.git("init", "--quiet", "--initial-branch=main")
        project.commit("The job")
        return project

    def git(self, *words: str) -> str:
        """git in the project's repository, with nobody's own settings."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.directory / "code", env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def environment(self) -> dict[str, str]:
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **self.env}
        env.pop("TPUFLEET_CONFIG", None)
        return env

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """`tpufleet WORDS…` in the project's directory, running."""
        return subprocess.Popen(
            [sys.executable, "-m", "tpufleet", *words],
            cwd=self.directory,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, *words: str, ok: bool = True, timeout: float = 120) -> Done:
        """`tpufleet WORDS…` to its end; with `ok` it must succeed. It never shows a traceback."""
        ended = warm().run(["-m", "tpufleet", *words], cwd=self.directory, env=self.environment(), timeout=timeout)
        done = Done(words, ended.returncode, ended.stdout, ended.stderr)
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        if ok:
            assert done.exit_code == 0, (
                f"tpufleet {' '.join(words)} ended with {done.exit_code}:\n{done.stdout}\n{done.stderr}"
            )
        return done

    def json(self, *words: str, ok: bool = True) -> Any:
        return self.run("--json", *words, ok=ok).json

    def stop(self) -> None:
        """End the project's rehearsal cloud and all that runs on it."""
        if (self.directory / "tpufleet.yaml").exists() and (self.directory / ".tpufleet" / "emulator").exists():
            self.run("emulator", "stop")


def missing(program: str) -> str | None:
    """A reason to skip when `program` isn't installed here."""
    return None if shutil.which(program) else f"{program} is not installed"


def until(condition: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """The first true value of `condition()`; fails the test when none comes in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")
