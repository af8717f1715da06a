"""The training job as a whole: what it leaves, and that nothing that happens to it can be seen in the losses."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from .trainings import Trainings, check_manifest, checkpoints, losses, newest_step, records, wait_until

DROPOUT = ("--dropout", "0.2")


def test_losses_fall(trained: tuple[Trainings, Path]) -> None:
    _, out = trained
    (_, _, first), *_, (step, _, last) = losses(out)
    assert step == 40
    assert isinstance(first, float)
    assert isinstance(last, float)
    assert last < first - 1


def test_each_evaluation_is_a_record_and_the_first_says_what_it_ran_on(trained: tuple[Trainings, Path]) -> None:
    _, out = trained
    metrics = records(out)
    assert [record["step"] for record in metrics] == [0, 10, 20, 30, 40]
    assert "train_loss" not in metrics[0]
    assert all(set(r) == {"step", "steps", "train_loss", "test_loss", "steps_per_second"} for r in metrics[1:])
    assert {record["steps"] for record in metrics} == {40}  # the last step there will be: time left is told by it
    setup = metrics[0]["setup"]
    assert isinstance(setup, dict)
    assert (setup["device"], setup["threads"], setup["resumed_from"]) == ("cpu", 1, None)
    assert setup["parameters"] > 1000
    assert re.match(r"2\.\d+", setup["torch"])


def test_each_evaluation_lets_the_model_speak(trained: tuple[Trainings, Path]) -> None:
    _, out = trained
    spoken = records(out, "completions")
    assert [record["step"] for record in spoken] == [0, 10, 20, 30, 40]
    assert all(set(record) == {"step", "prompt", "text"} for record in spoken)
    assert {record["prompt"] for record in spoken} == {'"Elementary, my dear'}


def test_a_checkpoint_is_as_its_manifest_says_and_only_the_newest_are_kept(trained: tuple[Trainings, Path]) -> None:
    _, out = trained
    assert checkpoints(out) == ["step-00000030", "step-00000040"]
    newest = out / "checkpoints" / "step-00000040"
    assert {path.name for path in newest.iterdir()} == {"manifest.json", "model.pt", "training.pt"}
    check_manifest(newest, 40)


def test_the_fleet_says_where_to_write(trained: tuple[Trainings, Path]) -> None:
    _, out = trained
    assert (out / "metrics.jsonl").exists()
    assert not (out.parent / "unused").exists()


def test_the_terminal_gets_a_line_for_each_evaluation_and_no_control_characters(
    trained: tuple[Trainings, Path],
) -> None:
    _, out = trained
    log = (out / "log.txt").read_text()
    assert len(re.findall(r"^step +\d+/40 .* test +\d\.\d{3}", log, re.MULTILINE)) == 5
    assert not set(log) & {chr(c) for c in [*range(9), *range(11, 32), *range(127, 160)]}


def test_the_same_seed_gives_the_same_training_and_another_seed_another(
    job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path
) -> None:
    _, first = trained
    job.train(tmp_path / "again")
    job.train(tmp_path / "other", "--seed", "1")
    assert losses(tmp_path / "again") == losses(first)
    assert records(tmp_path / "again", "completions") == records(first, "completions")
    assert losses(tmp_path / "other") != losses(first)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_training_that_was_ended_goes_on_to_the_same_losses_to_the_last_bit(
    job: Trainings, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    ended, whole = tmp_path / "ended", tmp_path / "whole"
    assert job.train_and_signal(ended, number, 25, *DROPOUT) == code
    reached = newest_step(ended)
    steps = ("--steps", str(reached + 25))
    job.train(ended, "--resume", "auto", *DROPOUT, *steps)
    job.train(whole, *DROPOUT, *steps)
    assert losses(ended) == losses(whole)
    assert records(ended, "completions") == records(whole, "completions")
    setups = [record["setup"] for record in records(ended) if "setup" in record]
    assert [setup["resumed_from"] for setup in setups] == [None, reached]  # type: ignore[index]  it is an object


def test_sigterm_saves_the_step_at_hand(job: Trainings, tmp_path: Path) -> None:
    options = ("--checkpoint-every", "1000000")
    assert job.train_and_signal(tmp_path / "out", signal.SIGTERM, 10, *options) == 143
    (saved,) = checkpoints(tmp_path / "out")
    assert int(saved.removeprefix("step-")) >= 10


def test_the_fleet_resumes_from_a_checkpoint_that_lies_elsewhere(
    job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path
) -> None:
    _, whole = trained
    mirrored = tmp_path / "mirrored" / "step-00000030"
    shutil.copytree(whole / "checkpoints" / "step-00000030", mirrored)
    run = {"TPUFLEET_RUN_DIR": str(tmp_path / "run"), "TPUFLEET_RESUME": str(mirrored)}
    job.train(tmp_path / "unused", **run)
    assert losses(tmp_path / "run") == losses(whole)[-1:]


def test_a_torn_checkpoint_is_never_loaded(job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path) -> None:
    _, whole = trained
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    torn = out / "checkpoints" / "step-00000040" / "training.pt"
    torn.write_bytes(torn.read_bytes()[:-1])
    (out / "checkpoints" / ".step-00000050").mkdir()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 50, "test_lo')

    refused = job.refusal(2, TPUFLEET_RESUME=str(torn.parent), TPUFLEET_RUN_DIR=str(out))
    assert "is damaged: training.pt is not as its manifest says" in refused

    job.train(out, TPUFLEET_RUN_DIR=str(out))
    assert losses(out) == losses(whole)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000030", "step-00000040"]


def test_a_fleets_run_without_any_whole_checkpoint_begins_anew(
    job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path
) -> None:
    _, whole = trained
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for manifest in run.glob("checkpoints/*/manifest.json"):
        manifest.unlink()
    job.train(run, TPUFLEET_RUN_DIR=str(run))
    assert losses(run) == losses(whole)


def test_a_finished_training_says_so_and_changes_nothing(
    job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path
) -> None:
    _, whole = trained
    shutil.copytree(whole, tmp_path / "out")
    assert "step 40 was reached before" in job.train(tmp_path / "out", "--resume", "auto")
    assert records(tmp_path / "out") == records(whole)


def test_a_persons_old_training_is_not_written_over(job: Trainings, trained: tuple[Trainings, Path]) -> None:
    _, out = trained
    refused = job.refusal(2, "--out", out)
    assert "holds a training already: --resume auto goes on with it, --out writes elsewhere" in refused


def test_neither_is_one_that_a_checkpoint_from_elsewhere_would_take_the_place_of(
    job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path
) -> None:
    _, whole = trained
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    assert "holds a training already" in job.refusal(2, "--out", out, "--resume", whole, "--steps", "50")
    assert checkpoints(out) == checkpoints(whole)


def test_going_on_to_a_step_that_was_passed_loses_nothing(
    job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path
) -> None:
    _, whole = trained
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    job.train(out, "--resume", out / "checkpoints" / "step-00000030", "--steps", "30")
    assert checkpoints(out) == checkpoints(whole)
    assert records(out) == records(whole)


def test_two_trainings_do_not_write_into_one_directory(job: Trainings, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job.start(*job.small, "--steps", "1000000", "--checkpoint-every", "1000000", "--out", out) as first:
        try:
            wait_until(lambda: bool(records(out)) or first.poll() is not None, "the first training")
            assert "another training is writing to" in job.refusal(2, "--out", out)
            assert first.poll() is None
        finally:
            first.kill()


def test_a_training_whose_reader_has_gone_ends_in_one_sentence(job: Trainings, tmp_path: Path) -> None:
    with job.start(*job.small, "--steps", "1000000", "--out", tmp_path / "out") as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline().startswith("device")
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(), said.count("\n")) == (1, 1), said
    assert "nobody reads what this prints any more" in said


@pytest.mark.parametrize(("name", "other"), [("model.pt", "training.pt"), ("training.pt", "model.pt")])
def test_a_checkpoint_that_holds_something_else_is_refused(
    job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path, name: str, other: str
) -> None:
    _, whole = trained
    forged = tmp_path / "step-00000040"
    shutil.copytree(whole / "checkpoints" / "step-00000040", forged)
    shutil.copy(forged / other, forged / name)
    manifest = json.loads((forged / "manifest.json").read_text())
    files = {file["path"]: file for file in manifest["files"]}
    files[name] = {**files[other], "path": name}
    (forged / "manifest.json").write_text(json.dumps({"step": 40, "files": list(files.values())}))
    refused = job.refusal(2, "--resume", forged, "--out", tmp_path / "out")
    assert "is not a checkpoint of this program, or of another version of it" in refused


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", '{"step": 1e999, "files": []}', "[" * 100_000, '{"step": 40, "files": [{"path": "\\u0000"}]}', "{}"],
)
def test_a_manifest_of_any_kind_is_refused_in_one_sentence(job: Trainings, tmp_path: Path, manifest: str) -> None:
    forged = tmp_path / "step-00000040"
    forged.mkdir()
    (forged / "manifest.json").write_text(manifest)
    assert "is not a checkpoint" in job.refusal(2, "--resume", forged, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--corpus", "missing.txt"], 2, "there is no text file missing.txt"),
        (["--context", "4000"], 2, "too few for a context of 4000"),
        (["--resume", "nowhere"], 2, "there is no whole checkpoint in nowhere"),
        (["--out", "/dev/null/x"], 1, "/dev/null"),
    ],
)
def test_what_a_person_can_mend_is_one_sentence(job: Trainings, options: list[str], code: int, says: str) -> None:
    assert says in job.refusal(code, *options)


def test_a_checkpoint_of_another_shape_or_text_is_refused(job: Trainings, trained: tuple[Trainings, Path]) -> None:
    _, out = trained
    shape = job.refusal(2, "--resume", out, "--width", "16", "--attention-only")
    assert "is of another model: width 8, not 16, attention_only False, not True" in shape
    assert "was trained on another text" in job.refusal(2, "--resume", out, "--corpus", "builtin:python-docs")


def test_the_exercises_options_work_together(job: Trainings, tmp_path: Path) -> None:
    options = "--attention-only --dropout 0.5 --preset demo --seed 3 --keep 1 --temperature 0 --steps 10"
    options += " --schedule cosine --warmup 4 --amp bf16 --tie-weights --profile"
    job.train(tmp_path / "out", *options.split(), "--prompt", "It is", "--prompt", "Hé \x1b[31m")
    assert checkpoints(tmp_path / "out") == ["step-00000010"]
    spoken = records(tmp_path / "out", "completions")
    assert [record["prompt"] for record in spoken] == ["It is", "Hé \x1b[31m"] * 2
    assert "traceEvents" in json.loads((tmp_path / "out" / "profile" / "trace.json").read_text())


@pytest.mark.faults
def test_a_compiled_step_learns_the_same(job: Trainings, trained: tuple[Trainings, Path], tmp_path: Path) -> None:
    _, plain = trained
    job.train(tmp_path / "out", "--compile", "--steps", "20", PATH=os.environ["PATH"], HOME=os.environ["HOME"])
    compiled = [record["test_loss"] for record in records(tmp_path / "out")]
    assert compiled == pytest.approx([record["test_loss"] for record in records(plain)[:3]], abs=1e-3)
