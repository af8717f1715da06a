"""The training in JAX: the same contract as the one in torch, the same losses, and three compilations."""

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tpufleet.host import checkpoints as verified

from .trainings import ROOT, Trainings, check_manifest, checkpoints, losses, newest_step, python_with, records

PROGRAM = ROOT / "jobs" / "gpt_jax" / "train.py"
SMALL = (
    *("--context", "16", "--width", "8", "--mlp", "16", "--heads", "2", "--layers", "2", "--batch", "4"),
    *("--steps", "40", "--eval-every", "10", "--eval-batch", "8", "--length", "12", "--checkpoint-every", "7"),
    *("--lr", "0.01", "--threads", "1", "--dropout", "0.1", "--keep", "3"),
)  # 7 and 10, so that most checkpoints lie between two evaluations
# float32 keeps 24 bits: a loss near 5 is rounded to 5e-7, and sums of thousands of terms in another order differ by
# a few of those. Seen over 100 steps: 1.4e-6.
TOLERANCE = 1e-5


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What has JAX keep its compiled programs: a test pays for each shape only once."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("jax")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",  # on a very busy machine XLA complains of how long it takes to compile
    }


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: dict[str, str]) -> tuple[Trainings, Path, str]:
    """A finished small training, run as the fleet would, and what it printed; to be looked at and never changed."""
    home = tmp_path_factory.mktemp("trained")
    job = Trainings(python_with("jax"), PROGRAM, SMALL, home / "home", cache)
    return job, home / "out", job.train(home / "unused", TPUFLEET_RUN_DIR=str(home / "out"))


@pytest.fixture
def job(trained: tuple[Trainings, Path, str]) -> Trainings:
    return trained[0]


@pytest.fixture
def whole(trained: tuple[Trainings, Path, str]) -> Path:
    return trained[1]


def test_losses_fall_and_the_fleet_says_where_to_write(whole: Path) -> None:
    (_, _, first), *_, (step, _, last) = losses(whole)
    assert step == 40
    assert float(str(last)) < float(str(first)) - 1
    assert not (whole.parent / "unused").exists()


def test_three_programs_are_compiled_and_none_after_the_first_evaluation(whole: Path) -> None:
    assert [record["compilations"] for record in records(whole)] == [3] * 5
    assert len({record["compile_seconds"] for record in records(whole)}) == 1


def test_each_evaluation_is_a_record_and_the_first_says_what_it_ran_on(whole: Path) -> None:
    first, *later = records(whole)
    assert [record["step"] for record in later] == [10, 20, 30, 40]
    assert all(
        set(record)
        == {"step", "steps", "train_loss", "test_loss", "steps_per_second", "compilations", "compile_seconds"}
        for record in later
    )
    assert {record["steps"] for record in records(whole)} == {40}
    setup = first["setup"]
    assert isinstance(setup, dict)
    assert (setup["device"], setup["resumed_from"]) == ("cpu", None)
    assert setup["parameters"] > 1000


def test_each_evaluation_lets_the_model_speak(trained: tuple[Trainings, Path, str]) -> None:
    _, whole, printed = trained
    spoken = records(whole, "completions")
    assert [record["step"] for record in spoken] == [0, 10, 20, 30, 40]
    assert {record["prompt"] for record in spoken} == {'"Elementary, my dear'}
    assert not set(printed) & {chr(c) for c in [*range(9), *range(11, 32), *range(127, 160)]}


def test_checkpoints_are_as_the_fleet_wants_them_and_only_the_newest_are_kept(whole: Path) -> None:
    assert checkpoints(whole) == ["step-00000028", "step-00000035", "step-00000040"]
    check_manifest(whole / "checkpoints" / "step-00000040", 40)
    assert verified.newest_verified(whole / "checkpoints") == whole / "checkpoints" / "step-00000040"


@pytest.mark.faults
@pytest.mark.parametrize("more", [(), ("--dropout", "0"), ("--steps-per-launch", "5", "--checkpoint-every", "10")])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_training_that_was_ended_goes_on_to_the_same_losses_to_the_last_bit(
    job: Trainings, tmp_path: Path, number: signal.Signals, code: int, more: tuple[str, ...]
) -> None:
    ended, undisturbed = tmp_path / "ended", tmp_path / "undisturbed"
    assert job.train_and_signal(ended, number, 25, *more) == code
    reached = newest_step(ended)
    steps = ("--steps", str(-(reached + 25) // 10 * -10))  # so that every number of steps a launch divides it
    job.train(ended, "--resume", "auto", *more, *steps)
    job.train(undisturbed, *more, *steps)
    assert losses(ended) == losses(undisturbed)
    assert records(ended, "completions") == records(undisturbed, "completions")
    resumed = [record["setup"]["resumed_from"] for record in records(ended) if "setup" in record]  # type: ignore[index]  it is an object
    assert resumed == [None, reached]


def test_sigterm_saves_the_step_at_hand_and_the_rest_comes_out_the_same(
    job: Trainings, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert job.train_and_signal(out, signal.SIGTERM, 10, "--checkpoint-every", "1000000") == 143
    (saved,) = checkpoints(out)
    assert newest_step(out) >= 10
    check_manifest(out / "checkpoints" / saved, newest_step(out))
    seen = losses(out)
    assert losses(whole)[: len(seen)] == seen[: len(losses(whole))]


@pytest.mark.faults
def test_the_fleet_resumes_from_a_checkpoint_that_lies_elsewhere(job: Trainings, whole: Path, tmp_path: Path) -> None:
    mirrored = tmp_path / "mirrored" / "step-00000035"
    shutil.copytree(whole / "checkpoints" / "step-00000035", mirrored)
    job.train(tmp_path / "unused", TPUFLEET_RUN_DIR=str(tmp_path / "run"), TPUFLEET_RESUME=str(mirrored))
    assert losses(tmp_path / "run") == losses(whole)[-1:]


def test_a_torn_checkpoint_is_never_loaded_and_the_one_before_leads_to_the_same_losses(
    job: Trainings, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    torn = out / "checkpoints" / "step-00000040" / "state.npz"
    torn.write_bytes(torn.read_bytes()[:-1])
    (out / "checkpoints" / ".step-00000050").mkdir()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 50, "test_lo')
    run = {"TPUFLEET_RUN_DIR": str(out)}
    refused = job.refusal(2, TPUFLEET_RESUME=str(torn.parent), **run)
    assert "is damaged: state.npz is not as its manifest says" in refused
    job.train(out, **run)
    assert losses(out) == losses(whole)
    assert records(out, "completions") == records(whole, "completions")
    assert checkpoints(out) == ["step-00000028", "step-00000035", "step-00000040"]


@pytest.mark.faults
@pytest.mark.parametrize("after", [1, 9, 10, 11, 19])
def test_from_any_checkpoint_the_losses_are_those_of_an_undisturbed_training(
    job: Trainings, tmp_path: Path, after: int
) -> None:
    steps = ("--steps", "20", "--block", "usual")
    out, mirrored = tmp_path / "out", tmp_path / "mirrored" / f"step-{after:08d}"
    job.train(out, *steps, "--checkpoint-every", "1", "--keep", "20")
    shutil.copytree(out / "checkpoints" / mirrored.name, mirrored)
    job.train(tmp_path / "run", *steps, "--resume", str(mirrored))
    assert losses(tmp_path / "run") == [loss for loss in losses(out) if int(str(loss[0])) > after]


@pytest.mark.faults
def test_several_steps_a_launch_give_the_same_losses(job: Trainings, whole: Path, tmp_path: Path) -> None:
    job.train(tmp_path / "out", "--steps-per-launch", "10", "--checkpoint-every", "10")
    for one, many in zip(records(whole), records(tmp_path / "out"), strict=True):
        assert one["test_loss"] == pytest.approx(many["test_loss"], abs=TOLERANCE)
        assert one.get("train_loss") == pytest.approx(many.get("train_loss"), abs=TOLERANCE)


@pytest.mark.parametrize("block", ["workshop", pytest.param("usual", marks=pytest.mark.faults)])
def test_torch_and_jax_have_the_same_losses_from_the_same_weights(job: Trainings, block: str) -> None:
    python = python_with("jax", "torch")
    steps = 25
    answer = subprocess.run(
        [python, Path(__file__).with_name("equals_torch.py"), ROOT / "jobs", str(steps), block],
        env={"PATH": os.environ["PATH"], **job.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    pairs = json.loads(answer.stdout)
    assert len(pairs) == steps
    assert pairs[-1][0] < pairs[0][0] - 1  # both have learned meanwhile
    for torchs, jaxs in pairs:
        assert jaxs == pytest.approx(torchs, abs=TOLERANCE)


def test_a_checkpoint_speaks_and_a_long_prompt_goes_on_from_its_last_bytes(job: Trainings, whole: Path) -> None:
    end = "0123456789abcdef"  # as long as the context
    begin = "once upon a time " * 50
    spoken = job.run("--complete", whole, "--length", "30", "--prompt", end, "--prompt", begin + end)
    assert spoken.returncode == 0, spoken.stderr
    assert spoken.stderr == "train.py: the prompt has 866 bytes; this model sees the last 16\n"
    short, long = spoken.stdout.split(begin)
    assert short.startswith(end)
    assert len(short) > len(end) + 1
    assert long == short


def test_what_a_person_can_mend_is_one_sentence(job: Trainings, whole: Path) -> None:
    other = job.refusal(2, "--resume", whole, "--width", "16", "--attention-only")
    assert "is of another model: width 8, not 16, attention_only False, not True" in other


@pytest.mark.faults
def test_and_so_is_all_the_rest(job: Trainings, whole: Path, tmp_path: Path) -> None:
    assert "JAX can't use a tpu here" in job.refusal(1, "--device", "tpu", "--out", tmp_path / "out")
    assert "the prompt is empty" in job.refusal(2, "--prompt", "")
    empty = tmp_path / "empty"
    empty.touch()
    short = tmp_path / "short"
    short.write_bytes(b"Holmes")
    assert f"the text is empty: {empty}" in job.refusal(2, "--corpus", empty)
    assert "the text has 6 bytes, too few for a context of 16" in job.refusal(2, "--corpus", short)
    assert "was trained on another text" in job.refusal(2, "--resume", whole, "--corpus", PROGRAM)
    assert "Unable to allocate" in job.refusal(1, "--width", "60000", "--layers", "1000", "--out", tmp_path / "out")
    assert "there is no text file missing.txt" in job.refusal(2, "--corpus", "missing.txt")
    assert "there is no whole checkpoint in nowhere" in job.refusal(2, "--resume", "nowhere")
    assert "--steps-per-launch does not divide --eval-every 10" in job.refusal(2, "--steps-per-launch", "4")
    assert "holds a training already: --resume auto goes on with it" in job.refusal(2, "--out", whole)
    other = shutil.copytree(whole, tmp_path / "other")
    assert "holds a training already" in job.refusal(2, "--out", other, "--resume", whole)
    assert "/dev/null" in job.refusal(1, "--out", "/dev/null/x")


@pytest.mark.faults
def test_bytes_are_bytes(job: Trainings, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(range(256)) * 20)
    job.train(tmp_path / "out", "--corpus", str(text), "--steps", "10", "--prompt", "é" * 100)
    assert [record["prompt"] for record in records(tmp_path / "out", "completions")] == ["é" * 100] * 2


@pytest.mark.faults
def test_a_writer_that_is_killed_leaves_a_whole_checkpoint_or_none(job: Trainings, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    dice = random.Random(os.getpid())  # noqa: S311 - moments to kill at, no secret
    seen = 0
    for _ in range(8):
        with subprocess.Popen(
            [job.python, Path(__file__).with_name("writes_jax.py"), PROGRAM, tmp_path],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout
            for _ in range(dice.randint(1, 5)):
                writer.stdout.readline()
            writer.kill()
        found = [verified.check(folder / name) for name in verified.names(folder)]
        assert found
        assert all(checkpoint.verified for checkpoint in found), found
        assert found[0].step > seen  # it went on from where it was
        seen = found[0].step
