"""The main job on Google Cloud itself: for the first person who has TPUs. It costs money (about an hour of one node).

TPUFLEET_LIVE=1 TPUFLEET_LIVE_PROJECT=my-project TPUFLEET_LIVE_ZONE=us-central1-b make test ARGS=tests/live

`TPUFLEET_LIVE_TYPE` names another accelerator than v2-8. Whatever happens, the fleet is deleted at the end, and the
proof is asserted; look with `gcloud compute tpus tpu-vm list --zone ZONE` all the same.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.project import Project

pytestmark = pytest.mark.skipif(
    os.environ.get("TPUFLEET_LIVE") != "1", reason="needs Google Cloud and costs money: TPUFLEET_LIVE=1"
)

# What the pin promises, seen from inside: every device of the framework that the image brings along, by its own words.
SEES = "import os; print('chip', os.environ['TPU_VISIBLE_CHIPS']); print(sorted(os.listdir('/dev')))"


def test_create_run_collect_and_the_proof_of_deletion(tmp_path: Path) -> None:
    kind = os.environ.get("TPUFLEET_LIVE_TYPE", "v2-8")
    jobs = f'  sees: {{command: [python3, -c, "{SEES}"], grid: {{seed: [0, 1, 2, 3]}}}}\n'
    project = Project.make(tmp_path / "project", accelerator=kind, jobs=jobs)
    file = project.directory / "tpufleet.yaml"
    cloud = (
        f"provider: gcp, project: {os.environ['TPUFLEET_LIVE_PROJECT']}, zones: [{os.environ['TPUFLEET_LIVE_ZONE']}]"
    )
    rehearsal = "provider: emulator, emulator: {create_seconds: 0}"
    text = file.read_text()
    assert rehearsal in text
    file.write_text(text.replace(rehearsal, cloud).replace("sherlock", "tpufleet-live"))
    try:
        assert project.run("create", timeout=1800).exit_code == 0
        assert "nothing to do" in project.run("create", timeout=600).stdout
        runs = project.json("run", "sees", "--follow")["runs"]
        assert {run["state"] for run in runs} == {"done"}
        assert len({chip for run in runs for chip in run["chips"]}) == 4
        assert project.json("collect")["problems"] == []
    finally:
        proof = project.run("--json", "delete", "--yes", timeout=1800).json["proof"]
    assert all(zone["nodes"] == 0 and zone["queued_resources"] == 0 for zone in proof)
