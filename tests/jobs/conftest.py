"""jobs/gpt on a small text, run by the Python that has PyTorch."""

from dataclasses import replace
from pathlib import Path

import pytest

from .trainings import GPT, TINY, Trainings, python_with

# what every training imports; the second only when its first step is taken, and it is the larger part
TORCH = ("torch", "torch._dynamo")


@pytest.fixture(scope="session")
def jobs_python() -> str:
    """A Python with torch; the tests that need it are skipped where there is none."""
    return python_with("torch", of=".venv-jobs")


@pytest.fixture
def job(jobs_python: str, tmp_path: Path) -> Trainings:
    return Trainings(jobs_python, GPT / "train.py", TINY, tmp_path / "home", libraries=TORCH)


@pytest.fixture(scope="session")
def trained(jobs_python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainings, Path]:
    """A finished tiny training, run as the fleet would, with a Python of its own; to be looked at and never changed.

    What it printed is in `log.txt`.
    """
    home = tmp_path_factory.mktemp("trained")
    job, out = Trainings(jobs_python, GPT / "train.py", TINY, home / "home"), home / "out"
    (home / "log.txt").write_text(job.train(home / "unused", TPUFLEET_RUN_DIR=str(out)))
    (home / "log.txt").rename(out / "log.txt")
    return replace(job, libraries=TORCH), out
