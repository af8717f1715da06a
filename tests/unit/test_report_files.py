"""The files beside the page: what a pull request, a spreadsheet and a program get, whatever a run has written."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.unit.report_data import PAYLOADS, write_home, write_hostile_home, write_lines, write_listing, write_run
from tpufleet import report
from tpufleet.report.downloads import safe_cell
from tpufleet.report.markdown import block, code

HOSTILE = (
    "[click](https://evil.example)",
    "![](https://evil.example/x.png)",
    "@octocat please",
    "#1 and owner/repo#2",
    "https://evil.example",
    "a|b\n| c | d |",
    "`code` ``more`` ```fence```",
    "<img src=x onerror=alert(1)>",
    "\\| and \\`",
    "# heading",
    "&lt;b&gt;",
    "",
    "   ",
)


@pytest.mark.parametrize("text", [*HOSTILE, *PAYLOADS])
def test_text_from_a_run_stays_within_its_code_span_and_its_cell(text: str) -> None:
    assert_contained(code(text, 10_000))


@given(st.text(alphabet=st.sampled_from("`|\\\n a<[]()!@#*_~"), max_size=40))
def test_no_text_ends_its_code_span_early(text: str) -> None:
    assert_contained(code(text))


def assert_contained(span: str) -> None:
    assert "\n" not in span and "|" not in span
    if span == "–":
        return
    fence = re.match("`+", span)
    assert fence and span.endswith(fence[0])
    inside = span[len(fence[0]) : -len(fence[0])]
    assert inside and len(fence[0]) not in {len(ticks) for ticks in re.findall("`+", inside)}
    assert not inside.startswith("`") and not inside.endswith("`")


@given(st.text(alphabet=st.sampled_from("`\n a"), max_size=40))
def test_no_completion_ends_its_block_early(text: str) -> None:
    first, *inside, last = block(text).split("\n")
    assert last == first.removesuffix("text") and set(last) == {"`"}
    assert not any(line.strip().startswith(last) for line in inside)


def test_a_pull_request_reads_what_won_and_how_to_see_more(tmp_path: Path) -> None:
    report.write(write_home(tmp_path))
    text = (tmp_path / "report/index.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `gpt-")]
    assert text.startswith(
        "# tpufleet report: `sherlock`\n\n8 runs on 8 chips of 2 nodes: 8 done. Best `test_loss` **1."
    )
    assert len(rows) == 8 and "**1.8" in rows[0] and rows[0].startswith("| `gpt-lr0.003-seed0` | done |")
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {11}
    assert "index.html" in text and "Elementary, my dear" in text


def test_a_large_sweep_is_thirty_rows_and_says_what_is_left(tmp_path: Path) -> None:
    report.write(write_home(tmp_path, runs=40, points=2))
    text = (tmp_path / "report/index.md").read_text()
    assert len(re.findall(r"^\| `gpt-", text, re.MULTILINE)) == 30
    assert "10 further runs in `runs.csv`." in text


def test_thirty_injections_leave_markdown_with_nothing_but_its_own_marks(tmp_path: Path) -> None:
    report.write(write_hostile_home(tmp_path))
    text = (tmp_path / "report/index.md").read_text()
    unblocked = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"(`+)(?:(?!\1).)*?\1(?!`)", "", unblocked)
    assert not re.search(r"[<>\[\]@]|https?:|alert", outside)
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_no_cell_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    for text in ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"):
        assert safe_cell(text) == f"'{text}"
    for text in ("-3e-05", "+1", "0.1", "a=b", "", None, -2.5):
        assert safe_cell(text) == text
    record = write_run(tmp_path, 0, {"lr": "=HYPERLINK(1)", "=x": "-1"} | {"lr": "0.001"})
    record |= {"reason": "=1+1", "params": {"=p": "@now", "lr": "-1"}}
    write_listing(tmp_path, [record])
    write_lines(tmp_path / "runs" / record["id"] / "metrics.jsonl", [{"step": 1, "=m": 2.0, "test_loss": 1.5}])
    report.write(tmp_path)
    for name in ("runs.csv", "metrics.csv"):
        with (tmp_path / "report" / name).open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
        assert cells


def test_every_point_of_every_run_is_a_row(tmp_path: Path) -> None:
    report.write(write_home(tmp_path, runs=3, points=700))
    with (tmp_path / "report/metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    losses = [row for row in rows if row["metric"] == "test_loss" and row["run"] == "gpt-lr0.001-seed0"]
    assert len(losses) == 700
    assert (losses[-1]["step"], losses[0].keys()) == ("2000", {"run", "metric", "step", "value"})


def test_points_are_written_as_numbers_that_read_back_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "runs/a"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 0.1, "b,\\"c": NaN}\n{"step": 2.5, "loss": 3}\n')
    assert list(csv.reader((report.write(tmp_path).parent / "metrics.csv").read_text().splitlines())) == [
        ["run", "metric", "step", "value"],
        ["a", "loss", "1", "0.1"],
        ["a", "loss", "2.5", "3.0"],
        ["a", 'b,"c', "1", "nan"],
    ]


def test_programs_get_the_runs_the_best_first_with_what_they_left(tmp_path: Path) -> None:
    report.write(write_home(tmp_path))
    told = json.loads((tmp_path / "report/runs.json").read_text())
    assert (told["schema"], told["fleet"], told["metric"]) == (1, "sherlock", "test_loss")
    assert told["best"] == told["runs"][0]["id"] == "gpt-lr0.003-seed0"
    assert [c["step"] for c in told["runs"][0]["checkpoints"]] == [1000, 2000]
    assert len(told["runs"][0]["checkpoints"][0]["files"][0]["sha256"]) == 64


def test_programs_get_json_whatever_the_runs_say(tmp_path: Path) -> None:
    report.write(write_hostile_home(tmp_path))
    text = (tmp_path / "report/runs.json").read_text()
    assert len(json.loads(text, parse_constant=pytest.fail)["runs"]) == len(PAYLOADS)
    assert "\\u001b" not in text and "\\u202e" not in text
