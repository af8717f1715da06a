"""A host that reboots goes on with its runs, from the last checkpoint, and nobody at home says a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.project import Project

from .rig import until

JOB = """\
import hashlib, json, os, pathlib, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
resume = os.environ.get("TPUFLEET_RESUME")
print("from", resume and pathlib.Path(resume).name, flush=True)
if resume is None:
    aside = run / "checkpoints/.step-00000100"
    aside.mkdir(parents=True)
    (aside / "model.bin").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    files = [{"path": "model.bin", "size": 7, "sha256": digest}]
    (aside / "manifest.json").write_text(json.dumps({"step": 100, "files": files}))
    aside.rename(run / "checkpoints/step-00000100")
    time.sleep(600)
"""


def test_a_rebooted_host_goes_on_by_itself_from_the_last_checkpoint(project: Project) -> None:
    (project.directory / "code/job.py").write_text(JOB)
    project.commit("It writes a checkpoint, and waits to be broken off")
    project.run("create")
    project.run("run", "one")
    host = project.directory / ".tpufleet/emulator/hosts/tpu-0-w0"
    (base,) = host.glob("**/var/lib/tpufleet")
    until((base / "runs/one/checkpoints/step-00000100").exists, "the checkpoint")
    project.run("emulator", "fault", "reboot", "tpu-0-w0")

    def state() -> dict[str, Any]:
        return dict(json.loads(Path(base, "control/one/state.json").read_text()))

    until(lambda: state()["state"] == "done", "the run to be done")
    assert state()["resumed_from"] == "step-00000100"
    assert [attempt["reason"] for attempt in state()["attempts"]] == ["host rebooted", None]
    assert (base / "runs/one/log.txt").read_text() == "from None\nfrom step-00000100\n"
