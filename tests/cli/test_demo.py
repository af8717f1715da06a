"""`make demo`'s script, with few steps: to its end, and again after it was killed in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOBS_PYTHON = Path(os.environ.get("TPUFLEET_JOBS_PYTHON", ROOT / ".venv-jobs" / "bin" / "python"))


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """This repository as it is here, with a demonstration of 20 steps."""
    clone = tmp_path / "tpufleet"
    shutil.copytree(ROOT / "jobs", clone / "jobs", ignore=shutil.ignore_patterns("__pycache__", "out"))
    fleet = (ROOT / "tpufleet.yaml").read_text().replace("--preset, demo,", "--preset, demo, --steps, '20',")
    fleet = fleet.replace(".venv-jobs/bin", str(JOBS_PYTHON.parent)).replace("seed: [0, 1, 2, 3]", "seed: [0]")
    (clone / "tpufleet.yaml").write_text(fleet)
    assert "--steps, '20'" in fleet
    identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *identity, *words], cwd=clone, check=True)
    yield clone
    subprocess.run([sys.executable, "-m", "tpufleet", "emulator", "stop"], cwd=clone, check=False)


def demo(clone: Path) -> subprocess.Popen[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["sh", "jobs/demo.sh"],
        cwd=clone,
        env={**os.environ, "PATH": path, "TPUFLEET_CORPUS": "builtin:python-docs"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.skipif(not JOBS_PYTHON.exists(), reason="no environment with PyTorch: make .venv-jobs/.made")
def test_the_demonstration_works_also_after_one_that_was_killed(clone: Path) -> None:
    first = demo(clone)
    assert first.stdout
    while "running on tpu-" not in (line := first.stdout.readline()):
        assert line, "the first demonstration ended early"
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()

    second = demo(clone)
    said, _ = second.communicate(timeout=240)
    assert second.returncode == 0, said
    assert "0 nodes, 0 queued resources of sherlock" in said
    assert said.count('"Elementary, my dear') == 3, "the heading and a completion of each run"
    report = clone / "artifacts/sherlock/report/index.html"
    assert str(report) in said
    assert report.stat().st_size > 5_000
