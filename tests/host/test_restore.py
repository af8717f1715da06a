"""What came home of a run is put on another host, whole or not at all, before the run goes on there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from .harness import Host
from .test_checkpoints import write_checkpoint

ENDED = {"n": 1, "host": "tpu-9-w0", "chips": ["tpu-9-w0:0"], "started": "a", "ended": "b", "reason": "preempted"}
TELLS = (
    "import os; print('resumed from', os.path.basename(os.environ['TPUFLEET_RESUME']), os.environ['TPUFLEET_ATTEMPT'])"
)


def offer(host: Host, folder: Path, run: str = "gpt") -> list[dict[str, Any]]:
    """Uploads what lies in `folder` under plain numbers, as home does; gives what is said of it."""
    staged = host.base / "restore" / run
    staged.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for number, path in enumerate(files):
        (staged / str(number)).write_bytes(path.read_bytes())
    return [
        {
            "path": str(path.relative_to(folder)),
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "mtime_ns": 10**18,
        }
        for path in files
    ]


def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    write_checkpoint(folder / "checkpoints", 10)
    (folder / "log.txt").write_text("loss: 3.0\n")
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n')
    return folder


def test_a_run_goes_on_with_its_checkpoint_its_log_its_numbers_and_its_attempts(host: Host, tmp_path: Path) -> None:
    files = offer(host, home(tmp_path))
    assert host.call("restore", run="gpt", files=files) == {"restored": True}
    assert host.call("probe")["runs"] == [], "it is not there before it is enqueued"
    assert not (host.base / "restore/gpt").exists()
    spec = host.spec("gpt", TELLS + "; print('loss: 2.0')", metrics={"loss": r"loss: ([\d.]+)"})
    host.enqueue({**spec, "attempts": [ENDED], "began": "2026-11-20T00:00:00Z"})
    state = host.wait_for("gpt", "done")
    assert state["resumed_from"] == "step-00000010"
    assert state["began"] == "2026-11-20T00:00:00Z"
    assert [(attempt["n"], attempt["reason"]) for attempt in state["attempts"]] == [(1, "preempted"), (2, None)]
    assert host.log("gpt") == "loss: 3.0\nresumed from step-00000010 2\nloss: 2.0\n"
    records = [json.loads(line) for line in (host.run_dir("gpt") / "metrics.jsonl").read_text().splitlines()]
    assert [record["loss"] for record in records] == [3.0, 2.0], "what was read on the other host isn't read again"
    assert records[-1]["step"] == 2
    offered = host.call("manifest", runs=["gpt"])["runs"][0]
    assert offered["checkpoints"][0]["verified"]


def test_doing_it_twice_is_harmless_and_a_run_that_is_there_is_left_alone(host: Host, tmp_path: Path) -> None:
    folder = home(tmp_path)
    for _ in range(2):
        assert host.call("restore", run="gpt", files=offer(host, folder)) == {"restored": True}
    host.enqueue(host.spec("gpt", "print('mine')"))
    host.wait_for("gpt", "done")
    (folder / "log.txt").write_text("another\n")
    assert host.call("restore", run="gpt", files=offer(host, folder)) == {"restored": False}
    assert host.log("gpt") == "loss: 3.0\nmine\n"


def test_a_file_that_came_damaged_or_not_at_all_leaves_nothing_behind(host: Host, tmp_path: Path) -> None:
    files = offer(host, home(tmp_path))
    (host.base / "restore/gpt/0").write_bytes(b"x" * files[0]["size"])
    error = host.error("restore", run="gpt", files=files)
    assert error["kind"] == "damaged"
    (host.base / "restore/gpt/0").unlink(missing_ok=True)
    assert "did not arrive" in host.error("restore", run="gpt", files=files)["message"]
    assert not host.run_dir("gpt").exists()


def test_a_checkpoint_that_is_not_as_its_manifest_says_is_refused(host: Host, tmp_path: Path) -> None:
    folder = home(tmp_path)
    (folder / "checkpoints/step-00000010/model.bin").write_bytes(b"another!")
    error = host.error("restore", run="gpt", files=offer(host, folder))
    assert "another content" in error["message"]
    assert not host.run_dir("gpt").exists()


def test_a_path_that_leads_elsewhere_and_attempts_that_have_not_ended_are_refused(host: Host, tmp_path: Path) -> None:
    files = offer(host, home(tmp_path))
    files[0]["path"] = "../../control/gpt/state.json"
    assert host.error("restore", run="gpt", files=files)["kind"] == "bad-request"
    assert host.error("restore", run="../x", files=[])["kind"] == "bad-request"
    for attempts in ([{**ENDED, "ended": None}], "x", [1]):
        spec = {**host.spec("gpt"), "attempts": attempts}
        assert host.error("enqueue", runs=[spec])["kind"] == "bad-request"


def test_done_again_from_the_start_a_run_has_another_life(host: Host) -> None:
    host.enqueue(host.spec("gpt"))
    first = host.wait_for("gpt", "done")
    host.enqueue(host.spec("gpt", submitted="2026-11-22T00:00:00Z"), restart=True)
    again = host.wait_for("gpt", "done")
    assert first["began"] != again["began"] == "2026-11-22T00:00:00Z"
