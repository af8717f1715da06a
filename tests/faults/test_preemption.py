"""A machine goes while a sweep is on: in the end it is as if nothing had happened, to the last bit.

What may be lost is said in steps: a run goes on from a checkpoint that is at most one interval of checkpoints older
than the step at which the run was last brought home (preemption), or at which it was hit (reboot). That it was brought
home within its `mirror` interval is said in time.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.sweep import HOSTS, Sweep, last_step, spin
from tests.faults.trainings import RUNS, Training, gpt, noisy, undisturbed
from tests.jobs.conftest import jobs_python  # noqa: F401 - a fixture
from tests.project import until

ZONE = "us-central1-b"
MIRROR_S = 2


@contextlib.contextmanager
def sweep_of(training: Training, directory: Path, *, queued: bool = False) -> Iterator[Sweep]:
    project = training.project(directory, mirror_s=MIRROR_S, queued=queued)
    with contextlib.ExitStack() as after:
        after.callback(project.stop)
        sweep = Sweep(project, training)
        after.callback(sweep.end_watch)
        yield sweep


def end(watching: subprocess.Popen[str]) -> str:
    """What a watch said that ended as it should."""
    out, err = watching.communicate(timeout=300)
    assert watching.returncode == 0, (out, err)
    assert "Traceback" not in err
    return err


# ------------------------------------------------------------------------------- the training that any Python runs


@pytest.fixture(scope="session")
def small() -> Training:
    return noisy(steps=120, every=15, pace=0.02, size=4_000)


@pytest.fixture(scope="session")
def small_reference(small: Training, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return undisturbed(small, tmp_path_factory.mktemp("undisturbed"))


def test_preempted_while_checkpoints_are_written(
    small: Training, small_reference: dict[str, Path], tmp_path: Path
) -> None:
    with sweep_of(small, tmp_path / "project") as sweep:
        sweep.run()
        watching = sweep.watch()
        until(lambda: sweep.progress() > 0.4, "two fifths of the sweep", 60)
        sweep.freeze_when("tpu-0-w0", lambda: sweep.saving("tpu-0-w0"), "a checkpoint in the middle of its write")
        sweep.cloud.faults.preempt("tpu-0")
        end(watching)
        assert any(loss.aside for loss in sweep.losses.values())
        sweep.judge(small_reference, "preempted", mirror_s=MIRROR_S)


def test_preempted_while_checkpoints_come_home(tmp_path: Path) -> None:
    large = noisy(steps=90, every=30, pace=0.03, size=400_000)
    (tmp_path / "undisturbed").mkdir()
    reference = undisturbed(large, tmp_path / "undisturbed")
    with sweep_of(large, tmp_path / "project") as sweep:
        sweep.run()
        watching = sweep.watch()
        until(lambda: sweep.progress() > 0.4, "two fifths of the sweep", 60)
        with sweep.cloud.faults.slow("tpu-0-w0", kbps=4_000):
            sweep.freeze_when("tpu-0-w0", lambda: sweep.mirroring("tpu-0-w0"), "half a checkpoint at home")
            half = sweep.mirroring("tpu-0-w0")
            sweep.cloud.faults.preempt("tpu-0")
        end(watching)
        assert half
        sweep.judge(reference, "preempted", mirror_s=MIRROR_S)


def test_rebooted_hosts_go_on_by_themselves(small: Training, small_reference: dict[str, Path], tmp_path: Path) -> None:
    with sweep_of(small, tmp_path / "project") as sweep:
        sweep.run()
        for host, moment in zip(HOSTS, (0.3, 0.6), strict=True):
            until(lambda moment=moment: sweep.progress() > moment, "its moment", 60)
            sweep.freeze(host)
            sweep.cloud.faults.reboot(host)
        until(lambda: all(sweep.state(run)["state"] == "done" for run in sweep.losses), "all to be done", 60)
        assert len(sweep.losses) == 8
        sweep.project.run("collect")
        sweep.judge(small_reference, "host rebooted", mirror_s=None)


def test_runs_that_were_done_but_not_home_are_done_again(tmp_path: Path) -> None:
    """`done` at home means that the results are there."""
    large = noisy(steps=40, every=30, pace=0.02, size=400_000)
    (tmp_path / "undisturbed").mkdir()
    reference = undisturbed(large, tmp_path / "undisturbed")
    with sweep_of(large, tmp_path / "project") as sweep:
        sweep.run()
        until(lambda: all(sweep.state(run)["state"] == "done" for run in sweep.on("tpu-0-w0")), "all to be done")
        watching = sweep.watch()
        with sweep.cloud.faults.slow("tpu-0-w0", kbps=4_000):
            spin(lambda: sweep.mirroring("tpu-0-w0"), "half a checkpoint at home")
            sweep.freeze("tpu-0-w0")
            sweep.cloud.faults.vanish("tpu-0")
        end(watching)
        assert [loss.done for loss in sweep.losses.values()] == [True] * 4
        sweep.judge(reference, "preempted", mirror_s=MIRROR_S)


@pytest.mark.faults
def test_runs_are_mirrored_when_it_is_time_however_seldom_watch_looks(tmp_path: Path) -> None:
    with sweep_of(noisy(steps=5_000, every=15, pace=0.02, size=4_000), tmp_path / "project") as sweep:
        sweep.run()
        sweep.watch(interval="10m")
        first = until(lambda: last_step(sweep.home(RUNS[0])), "the first records")
        until(lambda: last_step(sweep.home(RUNS[0])) > first, "more of them")
        assert sweep.state(RUNS[0])["state"] == "running", "its end would bring it home as well"


# ------------------------------------------------------------------------------------------- jobs/gpt, 20 seeds


@pytest.fixture(scope="session")
def real(jobs_python: str) -> Training:  # noqa: F811 - the fixture
    return gpt(jobs_python)


@pytest.fixture(scope="session")
def real_reference(real: Training, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An undisturbed sweep, as it came home."""
    directory = tmp_path_factory.mktemp("reference")
    with sweep_of(real, directory / "project") as sweep:
        sweep.run()
        end(sweep.watch())
        sweep.judge({run: sweep.home(run) for run in RUNS}, "", mirror_s=MIRROR_S)
        return {run: sweep.home(run) for run in RUNS}


@dataclass(frozen=True)
class Fault:
    """What happens to a node, and what becomes of it: whether it keeps its disk, what its runs say ended them."""

    begin: Callable[[Sweep, str], None]
    keeps_disk: bool = False
    queued: bool = False

    @property
    def reason(self) -> str:
        return "host rebooted" if self.keeps_disk else "preempted"


def maintain(sweep: Sweep, node: str) -> None:
    """It is announced, the node is called unhealthy, and its end boots the hosts anew."""
    sweep.cloud.faults.maintenance(node).end()


def stop(sweep: Sweep, node: str) -> None:
    sweep.cloud.client.stop_node({"name": f"{sweep.cloud.parent(ZONE)}/nodes/{node}"}).result()


FAULTS = {
    "preempted": Fault(lambda sweep, node: sweep.cloud.faults.preempt(node)),
    "vanished": Fault(lambda sweep, node: sweep.cloud.faults.vanish(node)),
    "suspended": Fault(lambda sweep, node: sweep.cloud.faults.suspend(node), queued=True),
    "stopped": Fault(stop, keeps_disk=True),
    "maintained": Fault(maintain, keeps_disk=True),
}


@dataclass(frozen=True)
class Case:
    seed: int
    moment: str
    kind: str

    def __str__(self) -> str:
        return f"{self.seed}, {self.kind} {self.moment}"


MOMENTS = ("at random", "at random", "while it saves", "while it comes home")  # five seeds each
CASES = [Case(seed, MOMENTS[seed // len(FAULTS)], list(FAULTS)[seed % len(FAULTS)]) for seed in range(20)]


@pytest.mark.faults
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_real_sweep_ends_as_if_nothing_had_happened(
    case: Case, real: Training, real_reference: dict[str, Path], tmp_path: Path
) -> None:
    dice, fault = random.Random(case.seed), FAULTS[case.kind]  # noqa: S311 - repeatable, no secret
    node = dice.choice(("tpu-0", "tpu-1"))
    host, share = f"{node}-w0", dice.uniform(0.0, 0.8)
    with sweep_of(real, tmp_path / "project", queued=fault.queued) as sweep, contextlib.ExitStack() as until_it_goes:
        sweep.run()
        watching = sweep.watch()
        spin(lambda: sweep.progress() >= share, f"{share:.3f} of the sweep")
        if case.moment == "while it saves":
            sweep.freeze_when(host, lambda: sweep.saving(host), "a checkpoint being written")
            assert any(loss.aside for loss in sweep.losses.values())
        elif case.moment == "while it comes home":
            until_it_goes.enter_context(sweep.cloud.faults.slow(host, kbps=1_500))
            sweep.freeze_when(host, lambda: sweep.mirroring(host), "a checkpoint half home")
            assert sweep.mirroring(host)
        else:
            sweep.freeze(host)
        fault.begin(sweep, node)
        until_it_goes.close()
        end(watching)
        sweep.judge(real_reference, fault.reason, mirror_s=None if fault.keeps_disk else MIRROR_S)
