"""Other people's tools read what came home: TensorBoard and Parquet, read back with their own libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

from tests.unit.report_data import PROMPT, START, write_home, write_hostile_home, write_lines
from tpufleet.errors import StateError, UsageError
from tpufleet.ops.exports import export, write_parquet
from tpufleet.ops.tensorboard import Kit, write_tensorboard
from tpufleet.report.rows import metric_rows

RUN = "gpt-lr0.001-seed0"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_home(tmp_path / "home")


def read_back(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


def points(accumulator: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, round(event.value, 4)) for event in accumulator.Scalars(tag)]


def written(home: Path, run: str, metric: str) -> list[tuple[int, float]]:
    lines = (home / "runs" / run / "metrics.jsonl").read_text().splitlines()
    return [(record["step"], record[metric]) for record in map(json.loads, lines)]


def test_tensorboard_reads_every_point_of_every_run(home: Path, tmp_path: Path) -> None:
    assert write_tensorboard(home, tmp_path / "boards") == 8
    assert len(list((tmp_path / "boards").iterdir())) == 8
    for run in sorted(path.name for path in (home / "runs").iterdir()):
        accumulator = read_back(tmp_path / "boards" / run)
        assert set(accumulator.Tags()["scalars"]) == {"train_loss", "test_loss", "steps_per_second", "parameters"}
        assert points(accumulator, "test_loss") == written(home, run, "test_loss")


def test_the_points_lie_between_the_run_s_start_and_end(home: Path, tmp_path: Path) -> None:
    write_tensorboard(home, tmp_path)
    times = [event.wall_time for event in read_back(tmp_path / RUN).Scalars("test_loss")]
    began = START.timestamp() + 3
    assert times == sorted(times)
    assert began < times[0] < times[-1] == began + 224


def test_completions_are_texts_and_parameters_are_hparams(home: Path, tmp_path: Path) -> None:
    write_tensorboard(home, tmp_path)
    accumulator = read_back(tmp_path / RUN)
    texts = accumulator.Tensors(f"completions/{PROMPT}")
    assert [event.step for event in texts] == [100, 1000, 2000]
    said = texts[0].tensor_proto.string_val[0].decode()
    assert said.startswith(f"    {PROMPT}e t   hoe an  siwtr, oe\n        nd aht")
    assert accumulator.SummaryMetadata(f"completions/{PROMPT}").plugin_data.plugin_name == "text"
    content = accumulator.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    session: Any = plugin_data_pb2.HParamsPluginData.FromString(content)
    values = session.session_start_info.hparams
    assert (values["lr"].number_value, values["seed"].number_value) == (0.001, 0.0)


def test_only_what_changed_is_written_anew_and_in_place_of_the_older(home: Path, tmp_path: Path) -> None:
    boards = tmp_path / "boards"
    write_tensorboard(home, boards)
    before = {path: path.stat().st_mtime_ns for path in boards.glob("*/events*")}
    assert write_tensorboard(home, boards) == 0
    with (home / "runs" / RUN / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2100, "test_loss": 1.5}\n')
    assert write_tensorboard(home, boards) == 1
    after = {path: path.stat().st_mtime_ns for path in boards.glob("*/events*")}
    assert len(after) == 8
    assert len(after.items() & before.items()) == 7
    assert points(read_back(boards / RUN), "test_loss")[-1] == (2100, 1.5)
    assert [path.name for path in boards.rglob("*") if path.is_file() and "tfevents" not in path.name] == []


def test_a_resumed_run_has_each_step_once(home: Path, tmp_path: Path) -> None:
    rows = [
        {"step": step, "steps": 4, "loss": loss} for step, loss in ((1, 4.0), (2, 3.0), (3, 9.0), (2, 2.0), (3, 1.0))
    ]
    write_lines(home / "runs" / RUN / "metrics.jsonl", rows)
    write_tensorboard(home, tmp_path)
    accumulator = read_back(tmp_path / RUN)
    assert points(accumulator, "loss") == [(1, 4.0), (2, 2.0), (3, 1.0)]
    assert accumulator.Tags()["scalars"] == ["loss"]


def test_what_hosts_wrote_stays_in_the_folder_and_is_text(tmp_path: Path) -> None:
    home, target = write_hostile_home(tmp_path / "home"), tmp_path / "boards"
    listing = json.loads((home / "runs.json").read_text())
    listing["runs"].append({"id": "../../outside", "params": {"../x": "../y"}})
    (home / "runs.json").write_text(json.dumps(listing))
    (home / "runs/gpt-n0/metrics.jsonl").write_text(
        '{"step": 1, "../../up\\u001b[31m": 1, "loss": NaN}\n{"step": 1e400}\n'
    )
    assert write_tensorboard(home, target) == 30
    assert {path.parent.parent for path in target.rglob("*tfevents*")} == {target}
    assert not (tmp_path / "outside").exists()
    for folder in target.iterdir():
        accumulator = read_back(folder)
        tags = [*accumulator.Tags()["scalars"], *accumulator.Tags()["tensors"]]
        assert tags
        assert all(tag.isprintable() for tag in tags)


def test_a_fleet_without_metrics_gives_readable_files_and_an_empty_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "home/runs/gpt").mkdir(parents=True)
    assert write_tensorboard(tmp_path / "home", tmp_path / "boards") == 1
    assert read_back(tmp_path / "boards/gpt").Tags()["scalars"] == []
    with pytest.raises(StateError, match="nothing to report on yet"):
        write_tensorboard(tmp_path / "absent", tmp_path / "boards")


def test_nothing_is_said_on_stderr_and_tensorflow_is_not_loaded(home: Path, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('tensorflow was loaded')\n")
    program = (
        "import sys; from pathlib import Path; from tpufleet.ops.tensorboard import write_tensorboard;"
        "print(write_tensorboard(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    words = [
        sys.executable,
        "-W",
        "error::DeprecationWarning:tpufleet",
        "-c",
        program,
        str(home),
        str(tmp_path / "boards"),
    ]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert (done.stdout, done.stderr, done.returncode) == ("8\n", "", 0)


def test_without_tensorboard_it_is_one_sentence_and_the_next_command(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)  # as if it were not installed
    with pytest.raises(UsageError, match="need the package tensorboard") as caught:
        write_tensorboard(home, tmp_path / "boards")
    assert caught.value.hint == "pip install 'tpufleet[tensorboard]'"
    assert not (tmp_path / "boards").exists()


def test_parquet_holds_every_point_with_plain_types(home: Path) -> None:
    path = write_parquet(home)
    assert path == home / "metrics.parquet"
    table = pyarrow.parquet.read_table(path)
    kinds = {name: str(table.schema.field(name).type) for name in ("step", "value")}
    assert kinds == {"step": "int64", "value": "double"}
    assert list(zip(*(table[name].to_pylist() for name in ("run", "metric", "step", "value")), strict=True)) == list(
        metric_rows(home)
    )
    frame = table.to_pandas()
    assert frame.groupby("run", observed=True).size().shape == (8,)
    assert sorted(path.name for path in home.iterdir()) == ["metrics.parquet", "runs", "runs.json"]


def test_parquet_is_written_again_only_when_something_came(home: Path) -> None:
    path = write_parquet(home)
    assert path
    first = path.stat().st_ino
    assert write_parquet(home) == path
    assert path.stat().st_ino == first
    metrics = home / "runs" / RUN / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write('{"step": 2100.5, "test_loss": 1.5}\n')
    later = path.stat().st_mtime_ns + 1
    os.utime(metrics, ns=(later, later))
    assert write_parquet(home) == path
    table = pyarrow.parquet.read_table(path)
    assert table.num_rows == 8 * 20 * 3 + 8 + 1
    assert 2100.5 in table["step"].to_pylist()


def test_without_pyarrow_no_parquet_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    assert write_parquet(home) is None
    assert not (home / "metrics.parquet").exists()


def test_a_fleet_without_runs_has_an_empty_parquet(tmp_path: Path) -> None:
    path = write_parquet(tmp_path)
    assert path
    assert pyarrow.parquet.read_table(path).column_names == ["run", "metric", "step", "value"]


def test_a_collect_exports_what_can_be_and_says_where(home: Path) -> None:
    assert export(home, None) == {"metrics": str(home / "metrics.parquet")}
    both = export(home, Kit.load())
    assert both["tensorboard"] == str(home / "tensorboard")
    assert points(read_back(home / "tensorboard" / RUN), "test_loss") == written(home, RUN, "test_loss")
