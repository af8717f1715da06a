"""Numbers from logs and from metrics.jsonl."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tpufleet.host import files, metrics
from tpufleet.host.places import RunPlaces

from .harness import Host

LOSS = {"loss": r"loss:\s+(\S+)"}


def say(run: RunPlaces, text: str) -> None:
    with run.log.open("a") as log:
        log.write(text)


def records(run: RunPlaces) -> list[Any]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()] if run.metrics.exists() else []


def test_numbers_are_read_from_the_log_line_by_line_and_each_once(run: RunPlaces) -> None:
    say(run, "training loss: 2.5\nnoise\ntraining loss: 2.25\ntraining lo")
    metrics.scan(run, LOSS)
    metrics.scan(run, LOSS)
    say(run, "ss: 2.0\n")
    metrics.scan(run, LOSS)
    assert records(run) == [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}, {"step": 3, "loss": 2.0}]


def test_a_pattern_named_step_gives_the_step(run: RunPlaces) -> None:
    say(run, "step 100 loss: 2.5\nstep 200\nloss: 2.25\n")
    metrics.scan(run, {**LOSS, "step": r"step (\d+)"})
    assert records(run) == [{"step": 100, "loss": 2.5}, {"step": 200, "loss": 2.25}]


def test_a_progress_bar_s_carriage_returns_are_line_ends(run: RunPlaces) -> None:
    say(run, "loss: 3\rloss: 2\r")
    metrics.scan(run, LOSS)
    assert [record["loss"] for record in records(run)] == [3, 2]


def test_the_last_line_counts_at_the_end_even_without_a_line_break(run: RunPlaces) -> None:
    say(run, "loss: 3\nloss: 2")
    metrics.scan(run, LOSS, at_end=True)
    assert [record["loss"] for record in records(run)] == [3, 2]


def test_a_number_that_the_job_writes_itself_is_not_doubled(run: RunPlaces) -> None:
    run.metrics.write_text('{"step": 1, "loss": 2.5}\n')
    say(run, "loss: 2.5 speed: 7\n")
    metrics.scan(run, {**LOSS, "speed": r"speed: (\d+)"})
    metrics.scan(run, {**LOSS, "speed": r"speed: (\d+)"})
    assert records(run) == [{"step": 1, "loss": 2.5}, {"step": 1, "speed": 7}]


def test_numbers_that_were_there_before_the_run_came_to_this_host_are_not_the_job_s_own(run: RunPlaces) -> None:
    run.metrics.write_text('{"step": 1, "loss": 2.5}\n')
    metrics.begin(run)
    say(run, "loss: 2.25\n")
    metrics.scan(run, LOSS)
    assert records(run)[1:] == [{"step": 1, "loss": 2.25}]


@pytest.mark.parametrize("was_appended", [True, False])
def test_whoever_goes_on_after_a_crash_counts_no_line_twice_and_none_never(
    run: RunPlaces, *, was_appended: bool
) -> None:
    say(run, "loss: 3\n")
    metrics.scan(run, LOSS)
    say(run, "loss: 2\n")
    line = '{"step": 2, "loss": 2.0}\n'
    kept = files.read_json(run.scan)
    assert kept is not None
    files.write_json(run.scan, {**kept, "log_offset": 16, "counts": {"loss": 2}, "pending": line})
    if was_appended:
        with run.metrics.open("a") as file:
            file.write(line)
    say(run, "loss: 1\n")
    metrics.scan(run, LOSS)
    assert [record["loss"] for record in records(run)] == [3, 2, 1]


def test_a_line_that_the_job_is_writing_is_not_cut_in_two(run: RunPlaces) -> None:
    run.metrics.write_text('{"step": 1, "speed"')
    say(run, "loss: 3\n")
    metrics.scan(run, LOSS)
    assert run.metrics.read_text() == '{"step": 1, "speed"'
    with run.metrics.open("a") as file:
        file.write(": 7}\n")
    metrics.scan(run, LOSS)
    assert records(run) == [{"step": 1, "speed": 7}, {"step": 1, "loss": 3}]


def test_a_pattern_that_backtracks_without_end_is_given_up_and_the_others_go_on(run: RunPlaces) -> None:
    say(run, f"loss: 1 {'a' * 5000}\nloss: 2 {'a' * 5000}\n")
    begun = time.monotonic()
    metrics.scan(run, {"evil": r"(?:a+)+$x", **LOSS})
    assert time.monotonic() - begun < 5
    assert [record["loss"] for record in records(run)] == [1, 2]
    assert (files.read_json(run.scan) or {})["disabled"] == ["evil"]


def test_a_loss_that_became_no_number_is_null(run: RunPlaces) -> None:
    say(run, "loss: 3\nloss: nan\n")
    metrics.scan(run, LOSS)
    assert records(run)[1] == {"step": 2, "loss": None}
    assert metrics.latest(run.metrics) == (2, {"loss": None})


def test_the_last_numbers_survive_whatever_a_job_writes(run: RunPlaces) -> None:
    run.metrics.write_text(
        '{"step": 1, "a": 1, "b": 1}\n[]\n{"step": 2, "a": NaN}\n{"step": 1e999, "c": true, "d": "x"}\n'
        f'{{"step": 3, "e": {"9" * 400}}}\n\xff\n{{"step": 4, "b": 2'
    )
    assert metrics.latest(run.metrics) == (3, {"a": None, "b": 1, "e": None})
    run.metrics.unlink()
    run.metrics.symlink_to("/dev/zero")
    assert metrics.latest(run.metrics) == (None, {})


def test_only_the_tail_of_a_large_file_is_read(run: RunPlaces) -> None:
    run.metrics.write_text('{"step": 1, "old": 1}\n' + '{"step": 2, "new": 2}\n' * 10_000)
    assert metrics.latest(run.metrics) == (2, {"new": 2})


def test_a_job_that_only_prints_has_its_numbers_in_its_state(host: Host) -> None:
    script = "for step in range(100):\n    print(f'step {step}\\ttraining loss:   {2.5 - step / 100}')"
    patterns = {"step": r"step (\d+)", "train_loss": r"training loss:\s+([\d.]+)"}
    host.enqueue(host.spec("gpt", script, metrics=patterns))
    ended = host.wait_for("gpt", "done")
    assert (ended["step"], ended["metrics"]) == (99, {"train_loss": 1.51})
    assert len((host.run_dir("gpt") / "metrics.jsonl").read_text().splitlines()) == 100


@pytest.mark.parametrize("pattern", ["(", "(a)(b)", "x" * 2000])
def test_a_bad_pattern_is_refused_before_anything_is_queued(host: Host, pattern: str) -> None:
    error = host.error("enqueue", runs=[host.spec("good"), host.spec("gpt", metrics={"loss": pattern})])
    assert error["kind"] == "bad-request"
    assert "gpt" in error["message"]
    assert host.call("probe")["runs"] == []
