"""What is left of the training job's records when it goes on from a checkpoint, without torch."""

from pathlib import Path

import pytest

from .trainings import load_module

records = load_module("records")


def test_what_came_after_the_checkpoint_is_cut_off_and_so_is_what_is_no_record(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    good = ['{"step": 10, "test_loss": 2.5}', '{"step": 20, "test_loss": null}']
    bad = ["", "\x00\xff", "[" * 100_000, "[]", "7", '{"step": "10"}', '{"step": 1e999}', '{"step": 30}']
    file.write_text("\n".join([good[0], *bad, good[1]]) + '\n{"step": 20, "test_lo', encoding="latin-1")
    assert records.last_step(file) == 30
    records.cut(file, 20)
    assert file.read_text() == "\n".join(good) + "\n"
    assert records.last_step(file) == 20
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_loss_that_is_no_number_is_still_a_record(tmp_path: Path) -> None:
    records.append(tmp_path / "metrics.jsonl", {"step": 1, "test_loss": float("nan")})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "test_loss": null}\n'


@pytest.mark.parametrize("step", [-1, 10])
def test_nothing_recorded_yet_is_nothing_to_cut(tmp_path: Path, step: int) -> None:
    records.cut(tmp_path / "metrics.jsonl", step)
    assert records.last_step(tmp_path / "metrics.jsonl") is None
