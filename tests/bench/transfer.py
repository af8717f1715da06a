"""Bringing checkpoints home: 8 runs on 2 hosts have one of 25 MB each."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.bench.measure import Row, in_turn, ratios, timed
from tests.bench.rig import openssh_config, rehearsal
from tests.project import Project
from tpufleet.ssh.handshake import CIPHERS

JOBS = '  save: {command: [python3, save.py, "{seed}"], grid: {seed: [0, 1, 2, 3, 4, 5, 6, 7]}}\n'
RUNS = 8
MB = 25
SAVE = f"""\
import hashlib, json, os, pathlib
whole = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"], "checkpoints", "step-00000001")
aside = whole.with_name("." + whole.name)
aside.mkdir(parents=True)
data = os.urandom({MB} * 1000 * 1000)
(aside / "model.bin").write_bytes(data)
entry = {{"path": "model.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}}
(aside / "manifest.json").write_text(json.dumps({{"step": 1, "files": [entry]}}))
aside.rename(whole)
"""


def run(place: Path) -> list[Row]:
    with rehearsal(place / "transfer", count=2, jobs=JOBS) as project:
        (project.directory / "code" / "save.py").write_text(SAVE)
        project.commit("A job that saves")
        project.run("create")
        project.run("run", "save", "--follow")
        return _compare(project, place / "copies")


def _compare(project: Project, copies: Path) -> list[Row]:
    config = openssh_config(project)
    sources = _sources(project)
    scp = ["scp", "-q", "-F", str(config)]
    seconds = in_turn(
        5,
        {
            "collect": lambda: _collect(project),
            "again": lambda: timed(lambda: _brings(project, 0)),
            "status": lambda: timed(lambda: project.run("status")),
            "scp": lambda: _copy([*scp, "-r"], sources, copies),
            "scp, same cipher": lambda: _copy([*scp, "-c", CIPHERS[0], "-r"], sources, copies),
        },
    )
    size = f"{RUNS} × {MB} MB from 2 hosts"
    beyond = [whole - start for whole, start in zip(seconds["collect"], seconds["status"], strict=True)]
    return [
        Row(
            f"collect, {size}",
            "scp -r, both hosts at once",
            ratios(seconds["collect"], seconds["scp"]),
            "collect compares every file with its sha256, on the host and at home; scp compares nothing",
        ),
        Row("collect less a status", "scp -r, both hosts at once", ratios(beyond, seconds["scp"])),
        Row("collect less a status", f"the same with {CIPHERS[0]}", ratios(beyond, seconds["scp, same cipher"])),
        Row("collect again, nothing new", "the first collect", ratios(seconds["again"], seconds["collect"])),
    ]


def _collect(project: Project) -> float:
    shutil.rmtree(project.directory / "artifacts", ignore_errors=True)
    return timed(lambda: _brings(project, RUNS))


def _brings(project: Project, checkpoints: int) -> None:
    brought = project.json("collect")
    assert brought["checkpoints"] == checkpoints, brought
    assert brought["bytes"] >= checkpoints * MB * 1000 * 1000, brought
    assert checkpoints or brought["bytes"] == 0, brought


def _sources(project: Project) -> list[str]:
    """Where scp finds the runs of each host."""
    roots = project.json("exec", "--", 'echo "$TPUFLEET_HOST_ROOT"')["results"]
    return [f"{one['host']}:{one['stdout'].strip()}/var/lib/tpufleet/runs" for one in roots]


def _copy(command: list[str], sources: list[str], copies: Path) -> float:
    """All sources at once, each into a directory of its own below `copies`."""
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()

    def copy() -> None:
        clients = [
            subprocess.Popen([*command, source, copies / str(number)], stdin=subprocess.DEVNULL)
            for number, source in enumerate(sources)
        ]
        for client in clients:
            assert client.wait() == 0, f"{command[0]} failed"

    seconds = timed(copy)
    assert len(list(copies.rglob("model.bin"))) == RUNS
    return seconds
