"""docs/notebook.md runs from top to bottom on an evening's results; its plots where matplotlib is installed."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tpufleet
from tests.unit.report_data import write_home
from tpufleet.ops.exports import write_parquet

PAGE = (Path(__file__).parents[2] / "docs/notebook.md").read_text()
BLOCKS = re.findall(r"```python( plot)?\n(.*?)```", PAGE, flags=re.DOTALL)
NODE = {
    **{"name": "tpu-0", "id": "1", "zone": "us-central1-b", "accelerator": "v2-8", "spot": False},
    **{"created": "2026-11-21T04:00:00Z", "seen": "2026-11-21T06:00:00Z", "gone": None},
    **{"hosts": ["tpu-0-w0"], "chips_per_host": 4, "usd_per_hour": 4.5},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = write_home(tmp_path / "artifacts/sherlock")
    (home / "nodes.json").write_text(json.dumps({"nodes": [NODE, {**NODE, "id": "2", "gone": "2026-11-21T05:00:00Z"}]}))
    write_parquet(home)
    monkeypatch.chdir(tmp_path)
    return home


@pytest.mark.usefixtures("home")
def test_its_code_runs_and_says_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    names = run([code for plot, code in BLOCKS if not plot])
    assert names["table"].index.tolist() == [0.003, 0.001]
    assert names["best"]["param.lr"] == pytest.approx(0.003)
    assert names["losses"].shape == names["smooth"].shape == (20, 8)
    assert "Elementary, my dear" in capsys.readouterr().out
    assert all(Path(path).is_file() for path in names["newest"])
    assert names["dollars"] == pytest.approx(13.5)
    assert names["busy"] == pytest.approx(names["runs"]["seconds"].sum() / 3600)
    assert len(names["points"]) == len(names["metrics"])


@pytest.mark.usefixtures("home")
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="its plots need matplotlib")
def test_its_plots_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = run([code for _, code in BLOCKS])
    assert len(names["axes"].collections) == 2


def run(blocks: list[str]) -> dict[str, Any]:
    """What the blocks leave, run one after the other as a notebook does."""
    names: dict[str, Any] = {}
    for code in blocks:
        exec(code, names)  # noqa: S102 - the page's own code
    return names


@pytest.mark.parametrize("frame", ["runs", "metrics", "completions", "checkpoints", "attempts", "nodes"])
def test_its_table_has_the_columns_of_each_frame(home: Path, frame: str) -> None:
    row = re.search(rf"^\| `{frame}` \| [^|]+ \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)
    assert row
    told = [name for name in re.findall(r"`([\w.]+)`", row[1]) if not name.endswith(".NAME")]
    found: pd.DataFrame = getattr(tpufleet.load(home), frame)
    assert told == [name for name in found.columns if "." not in name]
