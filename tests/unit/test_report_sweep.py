"""What the report makes of a sweep, of the fleet's time and of its price: pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.report_data import (
    START,
    node_record,
    run_record,
    stamp,
    write_hostile_home,
    write_listing,
    write_nodes,
)
from tpufleet import report
from tpufleet.report.cost import cost_of
from tpufleet.report.grid import axis, comparable, level, points, repeats, varying
from tpufleet.report.html import el, fragment
from tpufleet.report.load import Collection, load
from tpufleet.report.sweep import sweep
from tpufleet.report.timeline import DONE, FAILED, INTERRUPTED, STOPPED, ticks, timeline
from tpufleet.report.view import columns, deciding, view


def collected(home: Path, *runs: Mapping[str, Any], nodes: list[dict[str, Any]] | None = None) -> Collection:
    """What is loaded of these runs, each its parameters, its loss and what else differs from a run that is done."""
    records = []
    for index, changes in enumerate(runs):
        params = changes.get("params", {"n": str(index)})
        loss = {"metrics": {"test_loss": changes["loss"]}} if "loss" in changes else {}
        records.append(run_record(index, params) | loss | {k: v for k, v in changes.items() if k != "loss"})
    write_listing(home, records)
    write_nodes(home, nodes or [])
    return load(home)


def test_seeds_and_folds_repeat_and_other_parameters_do_not() -> None:
    assert all(map(repeats, ("seed", "random_seed", "data-seed", "Fold", "trial")))
    assert not any(map(repeats, ("lr", "seeds_per_batch", "unseeded", "seedling")))


def test_a_run_that_ended_early_counts_for_nothing_once_any_is_done(tmp_path: Path) -> None:
    runs = collected(
        tmp_path,
        {"params": {"lr": "0.1", "seed": "0"}, "loss": 2.0},
        {"params": {"lr": "0.1", "seed": "1"}, "loss": 5.0, "state": "failed"},
        {"params": {"lr": "0.2", "seed": "0"}, "loss": 3.0},
        {"params": {"lr": "0.2", "seed": "1"}, "loss": 3.5, "state": "running"},
    )
    found = points(runs.runs, ["lr"], "test_loss")
    assert [(point.mean, len(point.runs)) for point in found] == [(2.0, 2), (3.0, 2)]
    shown = fragment(el("section", sweep(view(runs))))
    assert "1 of 2" in shown
    assert "2 runs left out here: not done, or without a finite value." in shown
    unfinished = [run for run in runs.runs if run.state != "done"]
    assert [point.mean for point in points(unfinished, ["lr"], "test_loss")] == [3.5, 5.0]


def test_a_point_is_what_its_seeds_have_in_common_with_their_mean_and_spread(tmp_path: Path) -> None:
    runs = collected(
        tmp_path,
        {"params": {"lr": "0.1", "seed": "0"}, "loss": 2.0},
        {"params": {"lr": "0.1", "seed": "1"}, "loss": 4.0},
        {"params": {"lr": "0.2", "seed": "0"}, "loss": 1.0},
        {"params": {"lr": "0.2", "seed": "1"}, "loss": float("nan")},
        {"params": {"lr": "0.3", "seed": "0"}},
    ).runs
    assert varying(runs) == ["lr", "seed"]
    found = points(runs, ["lr"], "test_loss")
    assert [(p.value("lr"), len(p.runs), p.mean) for p in found] == [("0.2", 2, 1.0), ("0.1", 2, 3.0), ("0.3", 1, None)]
    assert found[0].sd is None
    assert found[1].sd == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    ("params", "picture"),
    [
        ([{"lr": lr} for lr in "123"], 'class="chart dots"'),
        ([{"lr": lr, "batch": b} for lr in "123" for b in "12"], 'class="heat"'),
        (
            [{"lr": lr, "batch": b, "depth": d} for lr in "12" for b in "12" for d in "12"],
            'class="chart parallel axes4"',
        ),
        ([{"seed": s} for s in "123"], 'class="points"'),
    ],
)
def test_the_picture_of_a_sweep_follows_from_how_many_parameters_vary(
    tmp_path: Path, params: list[dict[str, str]], picture: str
) -> None:
    found = collected(tmp_path, *({"params": p, "loss": 3 - i / 10} for i, p in enumerate(params)))
    markup = fragment_of(found)
    kinds = ('class="chart dots"', 'class="heat"', 'class="chart parallel', 'class="points"')
    assert picture in markup
    assert sum(kind in markup for kind in kinds) == 1


def fragment_of(collection: Collection) -> str:
    from tpufleet.report.html import el

    return fragment(el("div", sweep(view(collection))))


def test_in_a_heat_map_the_best_point_is_framed_and_the_darkest(tmp_path: Path) -> None:
    grid = [{"lr": lr, "batch": b} for lr in "123" for b in "12"]
    markup = fragment_of(collected(tmp_path, *({"params": p, "loss": 3 - i} for i, p in enumerate(grid))))
    assert markup.count(" best") >= 1
    assert '<td class="h0 best"><span class="badge">best </span><b>−2.000</b>' in markup


def test_jobs_with_other_parameters_are_sweeps_of_their_own_each_by_its_own_metric(tmp_path: Path) -> None:
    completion: dict[str, Any] = {"job": "completion", "id": "completion-way"}
    found = collected(
        tmp_path,
        *({"params": {"lr": lr}, "loss": float(lr)} for lr in "12"),
        *({"params": {"lr": lr}, "loss": float(lr), "job": "jax", "id": f"jax-lr{lr}"} for lr in "12"),
        *(
            completion | {"id": f"completion-{n}", "params": {"way": way}, "metrics": {"ms_a_byte": n, "bytes": 7 - n}}
            for n, way in enumerate(("fixed", "cpu"), 1)
        ),
    )
    assert [sorted({run.job for run in runs}) for runs in comparable(found.runs)] == [["completion"], ["gpt", "jax"]]
    markup = fragment_of(found)
    assert re.findall(r'<h3 class="job">([^<]*)', markup) == ["gpt, jax", "completion"]
    assert "<b>ms_a_byte</b> by way" in markup
    assert "<b>test_loss</b> by job and lr" in markup
    assert view(found).main == "test_loss"


def test_each_parameter_by_itself_has_the_means_of_all_that_differs(tmp_path: Path) -> None:
    grid = [{"amp": amp, "compile": compiled} for amp in ("none", "bf16") for compiled in ("no", "yes")]
    told = [
        {"test_loss": 2.0 + n, "steps_per_second": 10.0 + n, "parameters": 7}
        | ({"compile_seconds": 30.0 * n} if n else {})
        for n in range(4)
    ]
    markup = fragment_of(collected(tmp_path, *({"params": p, "metrics": m} for p, m in zip(grid, told, strict=True))))
    table = markup.split('<table class="effects">')[1].split("</table>")[0]
    rows = [re.findall(r">([^<>]+)<", row) for row in table.split("<tr>")[1:]]
    assert rows == [
        ["Parameter", "Value", "Runs", "test_loss", "steps_per_second", "compile_seconds"],
        ["amp", "bf16", "2", "4.500", "12.50", "75"],
        ["none", "2", "2.500", "10.50", "30"],
        ["compile", "no", "2", "3.000", "11", "60"],
        ["yes", "2", "4.000", "12", "60"],
    ]


def test_the_deciding_metric_is_a_loss_else_one_whose_name_says_the_lower_the_better() -> None:
    assert deciding(["accuracy", "train_loss", "test_loss"]) == "test_loss"
    assert deciding(["seconds", "train_loss"]) == "train_loss"
    assert deciding(["steps", "compilations", "bytes", "first_ms_a_byte", "seconds"]) == "first_ms_a_byte"
    assert deciding(["accuracy", "steps_per_second", "forms"]) is None


def test_the_table_of_runs_has_what_moves_or_differs(tmp_path: Path) -> None:
    found = collected(
        tmp_path,
        {"metrics": {"steps": 5, "compilations": 5, "test_loss": 2.0, "parameters": 9}},
        {"metrics": {"steps": 9, "compilations": 9, "test_loss": 2.1, "parameters": 9, "peak_bytes": 3}},
    )
    assert columns(found.runs, "test_loss") == ("test_loss", "compilations")


def test_nothing_that_varies_or_nothing_measured_is_no_sweep(tmp_path: Path) -> None:
    assert sweep(view(collected(tmp_path / "one", {"params": {"lr": "1"}, "loss": 2.0}))) is None
    assert sweep(view(collected(tmp_path / "two", {"params": {"lr": "1"}}, {"params": {"lr": "2"}}))) is None


def test_one_diverged_run_does_not_make_the_others_look_alike() -> None:
    losses = [1.8, 1.9, 2.0, 2.1, 2.2, 1e9]
    levels = [level(loss, losses) for loss in losses]
    assert levels[0] == 0 and levels[-1] == 8
    assert len(set(levels)) >= 4


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=20))
def test_every_result_has_a_level_and_the_lowest_is_the_first(losses: list[float]) -> None:
    assert all(0 <= level(loss, losses) <= 8 for loss in losses)
    assert level(min(losses), losses) == 0


def test_an_axis_of_numbers_is_in_their_order(tmp_path: Path) -> None:
    runs = collected(tmp_path, *({"params": {"lr": lr}} for lr in ("1e-3", "0.01", "3e-05", "1e-4"))).runs
    assert axis(runs, "lr").values == ("3e-05", "1e-4", "1e-3", "0.01")
    assert axis(runs, "lr").places == (0.0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0)


def attempt(
    chip: str, start: float, end: float | None, reason: str | None = None, exit_code: int | None = 0
) -> dict[str, Any]:
    """An attempt by the minutes from START."""
    return {
        "host": chip.split(":", maxsplit=1)[0],
        "chips": [chip],
        "started": stamp(START + timedelta(minutes=start)),
        "ended": None if end is None else stamp(START + timedelta(minutes=end)),
        "exit_code": exit_code,
        "reason": reason,
    }


def test_each_chip_has_a_row_with_what_ran_on_it_and_how_that_ended(tmp_path: Path) -> None:
    first, second = "tpu-0-w0:0", "tpu-0-w0:1"
    found = collected(
        tmp_path,
        {"attempts": [attempt(first, 0, 2, "preempted", None), attempt(second, 3, 5)]},
        {"attempts": [attempt(second, 0, 2, "exit nonzero (1)", 1)]},
        {"attempts": [attempt(first, 3, 4, "stopped by a person", None)]},
        nodes=[node_record("tpu-0", ["tpu-0-w0"])],
    )
    line = timeline(found.runs, found.nodes)
    assert line
    assert [row.name for row in line.rows] == [f"tpu-0-w0:{n}" for n in range(4)]
    assert [[bar.ending for bar in row.bars] for row in line.rows] == [[INTERRUPTED, STOPPED], [DONE, FAILED], [], []]
    assert (line.start, line.end) == (START - timedelta(minutes=1), START + timedelta(minutes=9))


def test_more_chips_than_fit_are_lanes_of_their_hosts(tmp_path: Path) -> None:
    chips = [f"tpu-{n}-w0:{c}" for n in range(21) for c in range(4)]
    found = collected(tmp_path, *({"attempts": [attempt(chip, 0, 2)]} for chip in chips))
    line = timeline(found.runs, ())
    assert line and len(line.rows) == 21
    assert all(row.lanes == 4 and len(row.bars) == 4 for row in line.rows)
    assert line.rows[2].name == "tpu-2-w0"


@pytest.mark.parametrize("span", [timedelta(seconds=40), timedelta(hours=1), timedelta(days=5), timedelta(days=90)])
def test_time_is_marked_at_round_moments_few_enough_to_read(span: timedelta) -> None:
    marks = ticks(START, START + span)
    assert 2 <= len(marks) <= 9
    assert all(START <= at <= START + span for at, _ in marks)
    assert len({word for _, word in marks}) == len(marks)


def test_days_are_said_by_their_date() -> None:
    start = datetime(2026, 11, 20, 13, tzinfo=UTC)
    assert [word for _, word in ticks(start, start + timedelta(days=6))][:3] == ["21 Nov", "22 Nov", "23 Nov"]


def test_a_run_pays_for_its_chips_while_its_node_was_there(tmp_path: Path) -> None:
    found = collected(
        tmp_path,
        {"attempts": [attempt("tpu-0-w0:0", 0, 6), attempt("tpu-1-w0:0", 0, 6)]},
        {"attempts": [attempt("tpu-0-w0:1", 3, None, exit_code=None)]},
        nodes=[
            node_record("tpu-0", ["tpu-0-w0"], usd_per_hour=6.0),  # ten minutes: one dollar, 40 chip-minutes
            node_record("tpu-1", ["tpu-1-w0"], usd_per_hour=None),
        ],
    )
    cost = cost_of(found.nodes, found.runs)
    assert cost.usd == pytest.approx(1.0)
    assert cost.unpriced == 1
    assert cost.runs == {"gpt-n0": pytest.approx(6 / 40), "gpt-n1": pytest.approx(6 / 40)}
    assert cost.idle == pytest.approx(1 - 18 / 80)


def test_under_a_grant_it_costs_nothing_and_that_is_said(tmp_path: Path) -> None:
    collected(tmp_path, {"loss": 2.0}, nodes=[node_record("tpu-0", ["tpu-0-w0"], usd_per_hour=0)])
    page = report.write(tmp_path).read_text()
    assert "$0.00 at list prices" in page
    assert "$0.00 at list prices, not a bill" in (tmp_path / "report/index.md").read_text()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(node=st.dictionaries(st.sampled_from(sorted(node_record("a", ["a"]))), JSON), whole=JSON)
def test_any_json_as_nodes_gives_a_report(tmp_path_factory: pytest.TempPathFactory, node: Any, whole: Any) -> None:
    home = tmp_path_factory.mktemp("home")
    collected(home, {"loss": 2.0}, nodes=[node_record("tpu-0", ["tpu-0-w0"]) | node])
    assert load(home).runs
    (home / "nodes.json").write_text(json.dumps(whole))
    assert load(home).nodes == ()


def test_hostile_names_are_a_fleet_like_any_other(tmp_path: Path) -> None:
    found = load(write_hostile_home(tmp_path))
    line = timeline(found.runs, found.nodes)
    assert line and line.rows
    assert cost_of(found.nodes, found.runs).usd > 0
