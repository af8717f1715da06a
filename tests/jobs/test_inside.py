"""The job's arithmetic, looked at from within by one process that has torch (inside.py)."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import TORCH
from .trainings import GPT, Trainings


@pytest.fixture(scope="module")
def found(jobs_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("inside") / "home"
    done = Trainings(jobs_python, Path(__file__).with_name("inside.py"), (), home, libraries=TORCH).run(GPT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_attention_by_hand_is_torchs_and_so_are_its_gradients(found: dict[str, Any]) -> None:
    assert max(found["attention_by_hand"]) < 1e-5


def test_torchs_kernel_is_taken_where_it_is_better(found: dict[str, Any]) -> None:
    assert all(found["left_to_torch"])


def test_a_completion_at_fixed_shapes_says_what_a_growing_one_says(found: dict[str, Any]) -> None:
    fixed, growing = found["completions"]
    assert len(fixed) == 40
    assert fixed == growing
    assert len(set(fixed)) > 10


def test_tied_weights_stay_one_through_a_checkpoint(found: dict[str, Any]) -> None:
    assert found["tied"] == {"one": True, "alike": True, "saved": 256 * 16}


def test_a_checkpoint_from_a_tpu_goes_on_here_to_the_last_bit(found: dict[str, Any]) -> None:
    assert found["from_another_device"]


def test_half_precision_learns_as_well_but_is_not_the_same(found: dict[str, Any]) -> None:
    full, half = found["half_precision"]
    assert full != half
    assert half == pytest.approx(full, abs=0.1)


def test_the_rate_rises_then_falls_like_a_cosine_to_a_tenth(found: dict[str, Any]) -> None:
    assert found["rates"] == pytest.approx([0.25, 0.5, 1.0, 1.0, 0.55, 0.1, 0.1, 0.001])


def test_several_steps_a_launch_are_the_same_steps(found: dict[str, Any]) -> None:
    single, launched, resumed = found["launches"]
    assert single == launched == resumed
