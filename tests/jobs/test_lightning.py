"""The model as a LightningModule: the same contract, and a resume that nothing can be seen of."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tpufleet.host import checkpoints as verified

from .trainings import ROOT, TINY, Trainings, check_manifest, checkpoints, losses, newest_step, python_with, records

PROGRAM = ROOT / "jobs" / "lightning" / "train.py"
# dropout, so that random numbers matter; 7 and 10, so that most checkpoints lie between two evaluations
SMALL = (*TINY, "--dropout", "0.1", "--checkpoint-every", "7", "--keep", "3")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainings, Path, str]:
    """A finished small training, run as the fleet would, and what it printed; to be looked at and never changed."""
    home = tmp_path_factory.mktemp("trained")
    python = python_with("torch", "lightning")
    job = Trainings(python, PROGRAM, SMALL, home / "home", libraries=("lightning.pytorch", "torch.utils.data"))
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
    assert device.startswith("device   cpu")
    assert [line.split()[:2] for line in lines] == [["step", f"{step}/40"] for step in (0, 10, 20, 30, 40)]


def test_checkpoints_are_as_the_fleet_wants_them_and_only_the_newest_are_kept(whole: Path) -> None:
    assert checkpoints(whole) == ["step-00000028", "step-00000035", "step-00000040"]
    check_manifest(whole / "checkpoints" / "step-00000040", 40)
    assert verified.newest_verified(whole / "checkpoints") == whole / "checkpoints" / "step-00000040"


def test_the_fleet_resumes_to_the_same_losses_from_a_checkpoint_between_two_evaluations(
    job: Trainings, whole: Path, tmp_path: Path
) -> None:
    mirrored = tmp_path / "mirrored" / "step-00000028"
    shutil.copytree(whole / "checkpoints" / "step-00000028", mirrored)
    job.train(tmp_path / "unused", TPUFLEET_RUN_DIR=str(tmp_path / "run"), TPUFLEET_RESUME=str(mirrored))
    assert losses(tmp_path / "run") == losses(whole)[-2:]
    assert records(tmp_path / "run", "completions") == records(whole, "completions")[-2:]


def test_ctrl_c_saves_the_step_at_hand(job: Trainings, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert job.train_and_signal(out, signal.SIGINT, 10, "--checkpoint-every", "1000000") == 130
    (saved,) = checkpoints(out)
    assert newest_step(out) >= 10
    check_manifest(out / "checkpoints" / saved, newest_step(out))
    seen = losses(out)
    assert losses(whole)[: len(seen)] == seen[: len(losses(whole))]


def test_what_lightning_can_not_do_is_refused_in_one_sentence(job: Trainings) -> None:
    assert "Lightning takes one step at a time" in job.refusal(
        2, "--steps-per-launch", "10", "--checkpoint-every", "10"
    )


@pytest.mark.faults
@pytest.mark.parametrize("after", [1, 9, 10, 11, 19])
def test_from_any_checkpoint_the_losses_are_those_of_an_undisturbed_training(
    job: Trainings, whole: Path, tmp_path: Path, after: int
) -> None:
    out = tmp_path / "out"
    schedule = ("--schedule", "cosine", "--warmup", "5", "--steps", "20")
    job.train(out, *schedule, "--checkpoint-every", "1", "--keep", "20")
    mirrored = tmp_path / "mirrored" / f"step-{after:08d}"
    shutil.copytree(out / "checkpoints" / mirrored.name, mirrored)
    job.train(tmp_path / "run", *schedule, "--resume", str(mirrored))
    assert losses(tmp_path / "run") == [loss for loss in losses(out) if int(str(loss[0])) > after]
    assert losses(out) != losses(whole)[:3]  # the rate did change


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
    assert losses(ended)[-1][0] == reached + 25  # an evaluation at the end, be its step a round number or not
    assert records(ended, "completions") == records(undisturbed, "completions")


@pytest.mark.faults
@pytest.mark.parametrize(
    "option", ["--precision=bf16-true", "--amp=bf16", "--tie-weights", "--block=usual", "--compile"]
)
def test_the_options_for_speed_and_shape_train(job: Trainings, tmp_path: Path, option: str) -> None:
    path = {"PATH": os.environ["PATH"], "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    printed = job.train(tmp_path / "out", option, "--metrics-report", **path)
    (_, _, first), *_, (_, _, last) = losses(tmp_path / "out")
    assert float(str(last)) < float(str(first)) - 1
    assert "there is no metrics report: that is torch_xla's, and this is a cpu" in printed


@pytest.mark.faults
def test_tied_weights_are_one_matrix(job: Trainings, whole: Path, tmp_path: Path) -> None:
    job.train(tmp_path / "out", "--tie-weights", "--steps", "10")
    usual, tied = (records(out)[0]["setup"]["parameters"] for out in (whole, tmp_path / "out"))  # type: ignore[index]  it is an object
    assert usual - tied == 256 * 8


@pytest.mark.faults
def test_dropout_and_the_rate_may_be_others_in_who_resumes(job: Trainings, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "out")
    job.train(tmp_path / "out", "--resume", "auto", "--dropout", "0.2", "--lr", "0.1", "--steps", "50")
    assert losses(tmp_path / "out")[:5] == losses(whole)
    assert losses(tmp_path / "out")[-1][0] == 50


@pytest.mark.faults
def test_what_a_person_can_mend_is_one_sentence(job: Trainings, whole: Path, tmp_path: Path) -> None:
    empty, short = tmp_path / "empty", tmp_path / "short"
    empty.touch()
    short.write_bytes(b"Holmes")
    assert f"the text is empty: {empty}" in job.refusal(2, "--corpus", empty, "--out", tmp_path / "out")
    assert "the text has 6 bytes, too few for a context of 16" in job.refusal(
        2, "--corpus", short, "--out", tmp_path / "out"
    )
    assert "there is no text file missing.txt" in job.refusal(2, "--corpus", "missing.txt")
    assert "there is no whole checkpoint in nowhere" in job.refusal(2, "--resume", "nowhere")
    assert "holds a training already: --resume auto goes on with it" in job.refusal(2, "--out", whole)
    other = shutil.copytree(whole, tmp_path / "other")
    assert "holds a training already" in job.refusal(2, "--out", other, "--resume", whole)
    assert "was trained on another text" in job.refusal(2, "--resume", whole, "--corpus", PROGRAM)
    other = job.refusal(2, "--resume", whole, "--width", "16", "--tie-weights")
    assert "is of another model: width 8, not 16, tie_weights False, not True" in other
    assert "Lightning can't use --device xla here" in job.refusal(1, "--device", "xla", "--out", tmp_path / "out")
    assert "Lightning does not know" in job.refusal(2, "--device", "tpu")
    assert "/dev/null" in job.refusal(1, "--out", "/dev/null/x")


@pytest.mark.faults
def test_bytes_are_bytes_and_a_long_prompt_is_seen_from_its_last_ones(job: Trainings, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(range(256)) * 20)
    job.train(tmp_path / "out", "--corpus", str(text), "--steps", "10", "--prompt", "é" * 100)
    assert [record["prompt"] for record in records(tmp_path / "out", "completions")] == ["é" * 100] * 2
