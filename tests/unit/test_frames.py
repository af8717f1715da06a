"""`tpufleet.load` and the rows below it: plain frames with the right types, whatever lies in the folder."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import tpufleet
from tests.unit.report_data import (
    LATE,
    PAYLOADS,
    PROMPT,
    run_record,
    write_home,
    write_hostile_home,
    write_lines,
    write_listing,
)
from tpufleet.errors import StateError, UsageError
from tpufleet.report.load import load as collected
from tpufleet.report.rows import metric_rows, run_rows

RUN = "gpt-lr0.001-seed0"
NODES = [
    {
        **{"name": "tpu-0", "id": "1", "zone": "us-central1-b", "accelerator": "v2-8", "spot": True},
        **{"created": "2026-11-21T04:00:00.123Z", "seen": "2026-11-21T05:00:00.000Z", "gone": None},
        **{"hosts": ["tpu-0-w0"], "chips_per_host": 4, "usd_per_hour": 4.5},
    },
    "nonsense",
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """`artifacts/sherlock` with the demo's eight runs and a node."""
    home = write_home(tmp_path / "artifacts/sherlock")
    (home / "nodes.json").write_text(json.dumps({"schema": 1, "fleet": "sherlock", "nodes": NODES[:1]}))
    return home


def test_importing_the_package_stays_light() -> None:
    program = "import sys, tpufleet; print(sorted(m for m in sys.modules if m.startswith(('tpufleet.', 'pandas'))))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = tpufleet.lod  # type: ignore[attr-defined]


def test_runs_are_a_table_of_parameters_and_numbers(home: Path) -> None:
    runs = tpufleet.load(home).runs
    assert len(runs) == 8
    best = runs.sort_values("min.test_loss").iloc[0]
    assert best["param.lr"] == pytest.approx(0.003)
    kinds = runs.dtypes.astype(str)
    assert (kinds["param.lr"], kinds["param.seed"], kinds["last.test_loss"]) == ("float64", "Int64", "float64")
    assert (kinds["step"], kinds["steps"], kinds["dirty"], kinds["id"]) == ("Int64", "Int64", "boolean", "string")
    assert str(runs["started"].dt.tz) == "UTC"
    assert (runs["ended"] - runs["started"]).dt.total_seconds().tolist() == runs["seconds"].tolist()
    assert runs["reason"].isna().all()


def test_metrics_are_every_point(home: Path) -> None:
    metrics = tpufleet.load(home).metrics
    losses = metrics[metrics["metric"] == "test_loss"].pivot(index="step", columns="run", values="value")
    assert losses.shape == (20, 8)
    first = json.loads((home / "runs" / RUN / "metrics.jsonl").read_text().split("\n")[0])
    assert losses.loc[100, RUN] == first["test_loss"]
    assert str(metrics["step"].dtype) == "Int64"


def test_a_resumed_run_has_each_step_once_and_the_total_is_no_metric(home: Path) -> None:
    lines = [{"step": s, "steps": 4, "loss": 1.0 * s} for s in (1, 2, 3)] + [{"step": 2, "steps": 4, "loss": 9.0}]
    write_lines(home / "runs" / RUN / "metrics.jsonl", lines)
    results = tpufleet.load(home)
    own = results.metrics[results.metrics["run"] == RUN]
    assert own[["metric", "step", "value"]].values.tolist() == [["loss", 1, 1.0], ["loss", 2, 9.0]]
    assert [row[1:] for row in metric_rows(home) if row[0] == RUN] == [("loss", 1.0, 1.0), ("loss", 2.0, 9.0)]
    row = results.runs.set_index("id").loc[RUN]
    assert (row["steps"], row["last.loss"], row["min.loss"]) == (4, 9.0, 1.0)
    assert "last.steps" not in results.runs


def test_a_loss_that_is_no_number_is_one_and_half_steps_stay(home: Path) -> None:
    path = home / "runs" / RUN / "metrics.jsonl"
    path.write_text('{"step": 0.5, "loss": NaN}\n{"step": 1.5, "loss": null}\n{"loss": 3}\n')
    metrics = tpufleet.load(home).metrics
    own = metrics[metrics["run"] == RUN]
    assert own["step"].tolist() == [0.5, 3.0]
    assert math.isnan(own["value"].iloc[0])


def test_completions_checkpoints_attempts_and_nodes_are_there(home: Path) -> None:
    results = tpufleet.load(home)
    last = results.completions[results.completions["run"] == RUN].iloc[-1]
    assert (last["step"], last["prompt"]) == (2000, PROMPT)
    assert LATE.startswith(last["text"])
    point = results.checkpoints.iloc[0]
    assert (point["run"], point["step"], point["file"], point["size"]) == (RUN, 1000, "model.pt", 80_000)
    assert Path(point["path"]).read_bytes()[:1] == b"\0"
    assert results.attempts["seconds"].tolist() == results.runs["seconds"].tolist()
    node = results.nodes.iloc[0]
    assert (node["name"], node["hosts"], node["chips_per_host"], node["usd_per_hour"]) == ("tpu-0", "tpu-0-w0", 4, 4.5)
    assert node["created"] == pd.Timestamp("2026-11-21T04:00:00.123Z")
    assert pd.isna(node["gone"])


def test_versions_have_columns(home: Path) -> None:
    record = {**run_record(0, {"lr": "0.001", "seed": "0"}), "versions": {"python": "3.11.2", "torch": "2.13.0+cpu"}}
    write_listing(home, [record])
    runs = tpufleet.load(home).runs.set_index("id")
    assert runs.loc[RUN, "version.torch"] == "2.13.0+cpu"
    assert runs["version.python"].isna().sum() == 7


def test_broken_lines_are_left_out_and_counted(home: Path) -> None:
    with (home / "runs" / RUN / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2100, "test_lo')
    (home / "nodes.json").write_text(json.dumps({"nodes": NODES}))
    results = tpufleet.load(home)
    assert results.notes == (f"{RUN}: metrics.jsonl: 1 line could not be read.",)
    assert len(results.metrics) == 8 * 20 * 3 + 8  # and the number of parameters
    assert len(results.nodes) == 2


def test_a_folder_of_one_fleet_is_enough_and_of_two_is_a_question(home: Path) -> None:
    assert len(tpufleet.load(home.parent).runs) == 8
    (home.parent / "notes").mkdir()
    assert tpufleet.load(str(home.parent)).home == home
    write_home(home.parent / "moriarty", runs=1)
    with pytest.raises(StateError, match=r"results of 2 fleets; name one: .*moriarty, .*sherlock"):
        tpufleet.load(home.parent)


def test_a_folder_without_results_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StateError, match="there are no results; `tpufleet collect` brings them home"):
            tpufleet.load(path)


def test_a_fleet_that_has_run_nothing_yet_has_empty_frames(tmp_path: Path) -> None:
    write_listing(tmp_path, [])
    results = tpufleet.load(tmp_path)
    for frame in (results.runs, results.metrics, results.completions, results.checkpoints, results.attempts):
        assert len(frame) == 0
        assert len(frame.columns) > 3
    assert results.nodes.empty


def test_without_pandas_it_is_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    with pytest.raises(UsageError, match=r"tpufleet.load needs pandas: pip install 'tpufleet\[notebook\]'"):
        tpufleet.load(home)


def test_what_hosts_wrote_is_harmless_and_every_row_is_there(tmp_path: Path) -> None:
    home = write_hostile_home(tmp_path / "home")
    results = tpufleet.load(home)
    assert len(results.runs) == len(PAYLOADS)
    assert set(results.metrics["run"]) == set(results.runs["id"])
    text = "".join(frame.to_csv() for frame in (results.runs, results.metrics, results.completions, results.attempts))
    assert not set("\x1b\x07\x00\u202e") & set(text)


def test_all_rows_of_runs_have_the_same_columns_in_one_order(home: Path) -> None:
    (home / "runs" / RUN / "metrics.jsonl").write_text('{"step": 1, "extra": 2}\n')
    rows = run_rows(collected(home))
    assert len({tuple(row) for row in rows}) == 1
    names = list(rows[0])
    assert names[:6] == ["id", "job", "state", "reason", "param.lr", "param.seed"]
    assert "last.extra" in names
    assert rows[0]["min.train_loss"] is None
