"""The main job as a user types it, on either cloud."""

from __future__ import annotations

from tests.project import Project

# What the pin promises, seen from inside.
SEES = 'import os; print("chip", os.environ["TPU_VISIBLE_CHIPS"])'


def test_create_run_collect_and_the_proof_of_deletion(fleet_there: Project) -> None:
    file = fleet_there.directory / "tpufleet.yaml"
    job = f"  sees: {{command: [python3, -c, '{SEES}'], grid: {{seed: [0, 1, 2, 3]}}}}\n"
    file.write_text(file.read_text() + job)
    assert fleet_there.run("create", timeout=1800).exit_code == 0
    assert "nothing to do" in fleet_there.run("create", timeout=600).stdout
    runs = fleet_there.json("run", "sees", "--follow")["runs"]
    assert {run["state"] for run in runs} == {"done"}
    assert len({chip for run in runs for chip in run["chips"]}) == 4
    assert fleet_there.json("collect")["problems"] == []
    assert "ends in 1 h" in fleet_there.run("status").stdout
