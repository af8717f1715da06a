"""The model as a LightningModule: the same contract, and a resume that nothing can be seen of."""

import shutil
import signal
from pathlib import Path

import pytest

from tpufleet.host import checkpoints as verified

from .conftest import ROOT, TINY, checkpoints, losses, records
from .trainings import Trainings, check_manifest, newest_step, python_with

PROGRAM = ROOT / "jobs" / "lightning" / "train.py"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainings, Path, str]:
    """A finished small training, run as the fleet would, and what it printed; to be looked at and never changed."""
    home = tmp_path_factory.mktemp("trained")
    job = Trainings(python_with("torch", "lightning"), PROGRAM, tuple(TINY), home / "home")
    return job, home / "out", job.train(home / "unused", TPUFLEET_RUN_DIR=str(home / "out"))


@pytest.fixture
def job(trained: tuple[Trainings, Path, str]) -> Trainings:
    return trained[0]


@pytest.fixture
def whole(trained: tuple[Trainings, Path, str]) -> Path:
    return trained[1]


def test_each_evaluation_is_a_record_a_completion_and_a_line(trained: tuple[Trainings, Path, str]) -> None:
    _, whole, printed = trained
    first, *later = records(whole)
    assert [record["step"] for record in later] == [10, 20, 30, 40]
    assert all(set(r) == {"step", "steps", "train_loss", "test_loss", "steps_per_second"} for r in later)
    assert float(str(later[-1]["test_loss"])) < float(str(first["test_loss"])) - 1
    setup = first["setup"]
    assert isinstance(setup, dict)
    assert (setup["device"], setup["resumed_from"]) == ("cpu", None)
    assert [record["step"] for record in records(whole, "completions")] == [0, 10, 20, 30, 40]
    device, *lines = printed.splitlines()  # no banner, no progress bar, no advice
    assert device.startswith("device cpu")
    assert [line.split()[:2] for line in lines] == [["step", f"{step}/40"] for step in (0, 10, 20, 30, 40)]


def test_checkpoints_are_as_the_fleet_wants_them_and_only_the_newest_are_kept(whole: Path) -> None:
    assert checkpoints(whole) == ["step-00000030", "step-00000040"]
    check_manifest(whole / "checkpoints" / "step-00000040", 40)
    assert verified.newest_verified(whole / "checkpoints") == whole / "checkpoints" / "step-00000040"


def test_the_fleet_resumes_from_a_checkpoint_that_lies_elsewhere(job: Trainings, whole: Path, tmp_path: Path) -> None:
    mirrored = tmp_path / "mirrored" / "step-00000030"
    shutil.copytree(whole / "checkpoints" / "step-00000030", mirrored)
    job.train(tmp_path / "unused", TPUFLEET_RUN_DIR=str(tmp_path / "run"), TPUFLEET_RESUME=str(mirrored))
    assert losses(tmp_path / "run") == losses(whole)[-1:]


@pytest.mark.faults
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_training_that_was_ended_goes_on_to_the_same_losses(
    job: Trainings, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    ended, undisturbed = tmp_path / "ended", tmp_path / "undisturbed"
    assert job.train_and_signal(ended, number, 25) == code
    reached = newest_step(ended)
    steps = ("--steps", str(reached + 25))
    job.train(ended, "--resume", "auto", *steps)
    job.train(undisturbed, *steps)
    assert losses(ended) == losses(undisturbed)
    assert records(ended, "completions") == records(undisturbed, "completions")


@pytest.mark.faults
def test_the_options_of_lightnings_guide_train(job: Trainings, tmp_path: Path) -> None:
    job.train(tmp_path / "out", "--precision", "bf16-true", "--tie-weights", "--metrics-report")
    (_, _, first), *_, (_, _, last) = losses(tmp_path / "out")
    assert float(str(last)) < float(str(first)) - 1
    setup = records(tmp_path / "out")[0]["setup"]
    assert isinstance(setup, dict)
    assert setup["parameters"] == 5648 - 256 * 8  # one matrix for the bytes that come and that go


@pytest.mark.faults
def test_what_a_person_can_mend_is_one_sentence(job: Trainings, whole: Path, tmp_path: Path) -> None:
    assert "there is no text file missing.txt" in job.refusal(2, "--corpus", "missing.txt")
    assert "there is no whole checkpoint in nowhere" in job.refusal(2, "--resume", "nowhere")
    assert "holds a training already: --resume auto goes on with it" in job.refusal(2, "--out", whole)
    other = job.refusal(2, "--resume", whole, "--width", "16", "--tie-weights")
    assert "is of another training: width 8, not 16, tie_weights False, not True" in other
    assert "Lightning can't use --device xla here" in job.refusal(1, "--device", "xla", "--out", tmp_path / "out")
