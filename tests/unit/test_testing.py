"""`tpufleet.testing`, used as other people's tests use it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from google.cloud import tpu_v2

from tests.project import Project
from tpufleet.emulator import launch
from tpufleet.testing import TpuCloud, rehearsal, tpu_cloud

__all__ = ["tpu_cloud"]  # the fixture

ZONE = "us-central1-b"
PATIENCE_S = 30
THREE_LINES = """\
from tpufleet.testing import tpu_cloud
def test_my_launcher(tpu_cloud):
    assert not list(tpu_cloud.client.list_nodes(parent=tpu_cloud.parent("us-central1-b")))
"""


def test_a_node_is_made_preempted_and_billed(tpu_cloud: TpuCloud) -> None:
    wanted = tpu_v2.Node(accelerator_type="v2-8", runtime_version="tpu-ubuntu2204-base")
    tpu_cloud.client.create_node(parent=tpu_cloud.parent(ZONE), node=wanted, node_id="n").result(timeout=PATIENCE_S)
    tpu_cloud.faults.preempt("n")
    node = tpu_cloud.client.get_node(name=f"{tpu_cloud.parent(ZONE)}/nodes/n")
    assert node.state.name == "PREEMPTED"
    assert tpu_cloud.book()["nodes"][0]["nodeSeconds"] > 0


def test_tpufleet_itself_comes_to_this_cloud(tpu_cloud: TpuCloud, tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project")
    project.env = tpu_cloud.env
    project.run("create")
    names = [node.name for node in tpu_cloud.client.list_nodes(parent=tpu_cloud.parent("-"))]
    assert [name.rpartition("/")[2] for name in names] == ["tpu-0"]


def test_states_wait_for_a_step_where_that_is_wanted(tmp_path: Path) -> None:
    with rehearsal(tmp_path / "cloud", manual=True) as cloud:
        wanted = tpu_v2.Node(accelerator_type="v2-8", runtime_version="tpu-ubuntu2204-base")
        creating = cloud.client.create_node(parent=cloud.parent(ZONE), node=wanted, node_id="n")
        assert not creating.done()
        assert cloud.step("n")
        assert creating.result(timeout=PATIENCE_S).state.name == "READY"


def test_three_lines_are_enough(tmp_path: Path) -> None:
    (tmp_path / "test_launcher.py").write_text(THREE_LINES)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(line, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(Exception, match=r"asyncssh.*tpufleet\[emulator\]"), rehearsal(tmp_path):
        pass


def test_the_cloud_ends_with_a_test_run_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from tpufleet.testing import rehearsal\n"
        "with rehearsal(pathlib.Path(sys.argv[1])):\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    line = [sys.executable, "-c", code, str(tmp_path / "cloud")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert run.stdout.readline() == "up\n"
        found = launch.running(tmp_path / "cloud")
        assert found
        daemon = os.pidfd_open(found.pid)
        run.kill()
    assert select.select([daemon], [], [], PATIENCE_S)[0]
    os.close(daemon)
