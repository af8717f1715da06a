"""The board over a rehearsal fleet whose runs really run: their curves and completions arrive, and their logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.board.test_command import serving
from tests.board.viewer import Viewer
from tests.project import Project, until

TRAIN = """\
import json, os, pathlib, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
gate = pathlib.Path(os.environ["GATE"])
print("begin", "\\x1b[2J", flush=True)
def record(step):
    with (run / "metrics.jsonl").open("a") as file:
        print(json.dumps({"step": step, "steps": 100, "test_loss": 3 / step}), file=file)
    with (run / "completions.jsonl").open("a") as file:
        print(json.dumps({"step": step, "prompt": "El", "text": f"Elementary <b>{step}"}), file=file)
record(10)
deadline = time.monotonic() + 60
while not gate.exists() and time.monotonic() < deadline:
    time.sleep(0.02)
record(20)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    gate = tmp_path / "gate"
    jobs = f'  gpt: {{command: [python3, train.py], env: {{GATE: "{gate}"}}, grid: {{seed: [0, 1]}}}}\n'
    project = Project.make(tmp_path / "project", jobs=jobs)
    (project.directory / "code/train.py").write_text(TRAIN)
    project.commit("Training")
    return project


def test_what_runs_write_arrives_while_they_write_it(project: Project, tmp_path: Path) -> None:
    try:
        project.run("create")
        project.run("run", "gpt")
        with serving(project, signed=False) as (_, site), Viewer(site) as viewer:
            runs = {"gpt-seed0", "gpt-seed1"}
            viewer.wait(lambda v: v.curves.keys() == runs)
            assert all(curves["test_loss"] == [[10], [0.3]] for curves in viewer.curves.values())
            assert {viewer.runs[run]["state"] for run in runs} == {"running"}
            assert "10" in viewer.parts[viewer.lists["runs"][0]]
            (tmp_path / "gate").touch()
            viewer.wait(lambda v: all(curves["test_loss"][0] == [10, 20] for curves in v.curves.values()))
            viewer.wait(lambda v: {v.runs[run]["state"] for run in runs} == {"done"})
            pieces = [viewer.parts[part] for part in viewer.lists["pieces"]]
            assert len(pieces) == 4
            assert all("ementary &lt;b&gt;" in piece for piece in pieces)
            assert any("done" in viewer.parts[part] for part in viewer.lists["happenings"])
            log = site.get("/log/gpt-seed0")
            assert (log.status, log.headers["content-type"]) == (200, "text/plain; charset=utf-8")
            assert log.text == "begin ␛[2J\n"
            assert site.get("/log/gpt-seed0", if_none_match=log.headers["etag"]).status == 304
            assert site.get("/log/gpt-seed7").status == 404
            page = until(lambda: t if "gpt-seed1" in (t := site.get("/").text) else None, "the page")
            assert "<b>" not in page
    finally:
        project.stop()
