"""What is missing, broken or hostile in the files becomes a note or a gap, never a crash."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.report_data import run_record, write_checkpoint, write_home, write_lines, write_listing, write_run
from tpufleet import report
from tpufleet.report.load import Run, load, natural
from tpufleet.report.records import as_time, records

ID = "gpt-lr0.001-seed0"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One good run."""
    record = write_run(tmp_path / "home", 0, {"lr": "0.001", "seed": "0"})
    write_listing(tmp_path / "home", [record])
    return tmp_path / "home"


def only_run(home: Path) -> Run:
    (run,) = load(home).runs
    report.write(home)  # whatever could be loaded can be written
    return run


def directory(home: Path) -> Path:
    return home / "runs" / ID


def test_a_half_written_last_line_is_counted_and_the_rest_stands(home: Path) -> None:
    with (directory(home) / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2100, "test_lo')
    run = only_run(home)
    assert run.notes == ("metrics.jsonl: 1 line could not be read.",)
    assert len(run.curves["test_loss"].points) == 20


def test_a_value_that_is_not_a_number_leaves_a_gap_and_is_said(home: Path) -> None:
    (directory(home) / "metrics.jsonl").write_text(
        '{"step": 1, "test_loss": 3}\n{"step": 2, "test_loss": NaN}\n{"step": 3, "test_loss": Infinity}\n'
    )
    run = only_run(home)
    assert run.curves["test_loss"].points == ((1.0, 3.0),)
    assert run.notes == ("metrics.jsonl: 2 values of test_loss not finite.",)


def test_a_diverged_run_is_never_the_best(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home")
    last = home / "runs/gpt-lr0.003-seed0/metrics.jsonl"
    last.write_text(last.read_text() + '{"step": 2100, "test_loss": NaN}\n')
    page = report.write(home).read_text()
    assert "gpt-lr0.003-seed1</a></span>.</p>" in page


def test_lines_of_another_shape_are_counted_one_by_one(home: Path) -> None:
    path = directory(home) / "metrics.jsonl"
    path.write_bytes(b'[1]\nnull\n7\n\n   \n"x"\n{}\n\xff\xfe\n' + b"[" * 100_000 + b'\n{"step": 1, "a": 1}\n')
    run = only_run(home)
    assert run.notes == ("metrics.jsonl: 7 lines could not be read.",)
    assert run.curves["a"].last == 1


def test_two_halves_of_a_record_on_two_lines_are_two_broken_lines(home: Path) -> None:
    (directory(home) / "metrics.jsonl").write_text('{"step": 1, "a": [1\n2]}\n{"a": 1},{"a": 2}\n')
    assert only_run(home).notes == ("metrics.jsonl: 3 lines could not be read.",)


def test_a_line_without_end_is_one_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + b"x" * (3 << 20) + b'\n{"step": 2}\n')
    assert list(records(path)) == [{"step": 1}, None, {"step": 2}]


def test_a_resumed_run_takes_back_what_came_after_its_checkpoint(home: Path) -> None:
    losses = [(1, 3.0), (2, 2.5), (3, 2.4), (2, 2.6), (3, 2.2)]
    write_lines(directory(home) / "metrics.jsonl", [{"step": s, "test_loss": v} for s, v in losses])
    said = [(1, "a"), (2, "b"), (3, "c"), (2, "d")]
    write_lines(directory(home) / "completions.jsonl", [{"step": s, "prompt": "p", "text": t} for s, t in said])
    run = only_run(home)
    assert run.curves["test_loss"].points == ((1.0, 3.0), (2.0, 2.6), (3.0, 2.2))
    assert [c.text for c in run.completions] == ["a", "d"]


def test_records_without_a_step_are_counted(home: Path) -> None:
    (directory(home) / "metrics.jsonl").write_text('{"loss": 3}\n{"loss": 2}\n')
    assert only_run(home).curves["loss"].points == ((1.0, 3.0), (2.0, 2.0))


def test_what_a_run_says_of_its_set_up_stands_with_it_in_parts(home: Path) -> None:
    first = {"step": 0, "test_loss": 5.8, "setup": {"device": "cpu", "threads": 1, "resumed_from": None}}
    write_lines(directory(home) / "metrics.jsonl", [first])
    assert only_run(home).facts == {"setup device": "cpu", "setup threads": "1", "setup resumed_from": ""}


def test_a_run_that_never_started_has_no_curve_and_no_times(tmp_path: Path) -> None:
    record = run_record(0, {"lr": "0.001"}) | {"state": "queued", "attempts": [], "chips": [], "step": None}
    write_listing(tmp_path, [record])
    run = only_run(tmp_path)
    assert (run.started, run.ended, run.trained_for, run.step, run.curves) == (None, None, None, None, {})
    assert "had not ended when this was collected; it was queued." in (tmp_path / "report/index.html").read_text()


def test_a_run_that_failed_before_its_first_step_says_why(tmp_path: Path) -> None:
    record = run_record(0, {"lr": "0.001"}) | {"state": "failed", "reason": "command not found", "step": None}
    write_listing(tmp_path, [record])
    page = report.write(tmp_path).read_text()
    assert "failed: command not found." in page
    assert "No metrics came home." in page


def test_without_a_list_the_runs_are_taken_from_their_own_files(home: Path) -> None:
    for broken in ("", "{", "[]", "null", "\x00" * 10):
        (home / "runs.json").write_text(broken)
        collection = load(home)
        assert [run.id for run in collection.runs] == [ID]
        assert collection.fleet == "home"
        assert "runs.json is missing or can't be read" in collection.notes[0]


def test_times_add_up_over_attempts(home: Path) -> None:
    record = run_record(0, {"lr": "0.001", "seed": "0"})
    first = {"n": 1, "started": "2026-11-21T03:00:00Z", "ended": "2026-11-21T03:01:00Z", "reason": "preempted"}
    second = {"n": 2, "started": "2026-11-21T05:00:00+01:00", "ended": "2026-11-21T05:00:30+01:00"}
    write_listing(home, [record | {"attempts": [first, second, {"n": 3, "started": "soon"}, 7]}])
    run = only_run(home)
    assert run.trained_for == timedelta(seconds=90)
    assert [a.number for a in run.attempts] == [1, 2, 3, 4]


def test_times_of_any_kind_are_read_or_left_out() -> None:
    for value in (None, 5, "", "yesterday", "0001-01-01T00:00:00+14:00", "2026-13-01T00:00:00Z"):
        assert as_time(value) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda folder: (folder / "model.pt").unlink(), "model.pt is not here"),
        (lambda folder: (folder / "model.pt").write_bytes(b"short"), "model.pt has another size"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "no manifest that could be read"),
        (lambda folder: (folder / "manifest.json").unlink(), "no manifest that could be read"),
    ],
)
def test_a_checkpoint_that_is_not_whole_says_so(home: Path, change: Any, problem: str) -> None:
    change(directory(home) / "checkpoints/step-00002000")
    good, bad = only_run(home).checkpoints
    assert (good.step, good.problem, good.size) == (1000, "", 80_000)
    assert (bad.step, bad.problem) == (2000, problem)


@pytest.mark.parametrize("name", ["../../../runs.json", "/etc/hostname", "a/../../x", "", "a\0b"])
def test_a_manifest_cannot_lead_out_of_its_checkpoint(home: Path, name: str) -> None:
    folder = write_checkpoint(directory(home), 3000, b"x")
    (folder / "manifest.json").write_text(json.dumps({"files": [{"path": name, "size": 1}]}))
    assert only_run(home).checkpoints[-1].problem == "a file name that is not safe"


def test_links_are_not_followed(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    for name in ("log.txt", "completions.jsonl"):
        (directory(home) / name).unlink()
        (directory(home) / name).symlink_to(secret)
    assert only_run(home).log == ()
    assert "the secret" not in (home / "report/index.html").read_text()


def test_the_end_of_a_log_is_what_a_terminal_would_show_last(home: Path) -> None:
    log = "".join(f"line {i}\n" for i in range(5000)) + "10 %\r50 %\r100 %\r\n\x1b[31mred\x1b[0m and \x1b]0;t\x07"
    (directory(home) / "log.txt").write_bytes(log.encode())
    run = only_run(home)
    assert len(run.log) == 30
    assert run.log[-2] == "100 %"
    page = (home / "report/index.html").read_text()
    assert "red and ␛]0;t␇" in page
    assert "\x1b" not in page


def test_the_prompt_is_not_said_twice(home: Path) -> None:
    said = [{"step": 1, "prompt": "My dear", "text": t} for t in ("My dear Watson", " Watson")]
    write_lines(directory(home) / "completions.jsonl", said)
    assert [c.text for c in only_run(home).completions] == [" Watson", " Watson"]


def test_many_completions_are_thinned_evenly_and_the_newest_stays(home: Path) -> None:
    write_lines(directory(home) / "completions.jsonl", [{"step": s, "text": str(s)} for s in range(1, 501)])
    steps = [c.step for c in only_run(home).completions]
    assert len(steps) == 40
    assert (steps[0], steps[-1]) == (1, 500)


def test_runs_are_ordered_as_people_count() -> None:
    names = ["lr0.01-seed2", "lr0.003-seed10", "lr0.003-seed2", "a", "lr"]
    assert sorted(names, key=natural) == ["a", "lr", "lr0.003-seed2", "lr0.003-seed10", "lr0.01-seed2"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(run_record(0, {"lr": "1"}).keys() - {"id"})


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_json_in_any_field_gives_a_page(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    home = tmp_path_factory.mktemp("home")
    record = run_record(0, {"lr": "0.001"}) | data.draw(st.dictionaries(st.sampled_from(FIELDS), JSON))
    attempts = data.draw(st.lists(st.dictionaries(st.sampled_from(["n", "started", "exit_code", "chips"]), JSON)))
    rows = data.draw(st.lists(st.dictionaries(st.sampled_from(["step", "test_loss", "x"]), JSON), max_size=6))
    write_listing(home, [record | {"attempts": attempts}])
    (home / "runs" / record["id"]).mkdir(parents=True)
    write_lines(home / "runs" / record["id"] / "metrics.jsonl", rows)
    assert report.write(home).stat().st_size > 0
