"""Completions from a checkpoint."""

import hashlib
import json
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import Job


def test_a_seed_gives_the_same_completion_from_a_checkpoint_as_from_its_directory(trained: tuple[Job, Path]) -> None:
    job, out = trained
    newest = out / "checkpoints" / "step-00000040"
    said = [
        job.run("complete.py", where, "It is", "--seed", seed, "--length", "40").stdout
        for where, seed in ((out, "1"), (newest, "1"), (out, "2"))
    ]
    assert said[0].startswith("It is")
    assert said[0] == said[1] != said[2]


def test_a_prompt_longer_than_the_context_goes_on_from_its_last_bytes(trained: tuple[Job, Path]) -> None:
    job, out = trained
    end = "0123456789abcdef"  # as long as the context
    long = job.run("complete.py", out, "once upon a time " * 50 + end, "--length", "30")
    assert (long.returncode, long.stderr) == (0, "complete.py: the prompt has 866 bytes; this model sees the last 16\n")
    assert long.stdout.endswith(job.run("complete.py", out, end, "--length", "30").stdout)


def test_what_a_model_says_cannot_steer_the_terminal(trained: tuple[Job, Path]) -> None:
    job, out = trained
    hot = job.run("complete.py", out, "\x1b[31m\xff", "--temperature", "50", "--length", "400")
    assert hot.returncode == 0
    assert not set(hot.stdout) & {chr(c) for c in [*range(9), *range(11, 32), *range(127, 160)]}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["{out}", ""], 2, "the prompt is empty"),
        (["nowhere"], 2, "there is no whole checkpoint in nowhere"),
        (["{out}", "--device", "cuda"], 1, "can't use a GPU"),
    ],
)
def test_bad_input_is_one_sentence(trained: tuple[Job, Path], arguments: list[str], code: int, says: str) -> None:
    job, out = trained
    refused = job.run("complete.py", *[argument.format(out=out) for argument in arguments])
    assert refused.returncode == code
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_damaged_checkpoint_does_not_speak(trained: tuple[Job, Path], tmp_path: Path) -> None:
    job, out = trained
    damaged = tmp_path / "step-00000040"
    shutil.copytree(out / "checkpoints" / "step-00000040", damaged)
    (damaged / "model.pt").write_bytes(b"x" * (damaged / "model.pt").stat().st_size)
    refused = job.run("complete.py", damaged)
    assert refused.returncode == 2
    assert "is damaged: model.pt" in refused.stderr


def forged(directory: Path, data: bytes) -> Path:
    """A checkpoint whose manifest is in order and whose model is `data`."""
    directory.mkdir()
    (directory / "model.pt").write_bytes(data)
    file = {"path": "model.pt", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (directory / "manifest.json").write_text(json.dumps({"step": 1, "files": [file]}))
    return directory


def test_a_checkpoint_of_another_shape_does_not_speak(trained: tuple[Job, Path], tmp_path: Path) -> None:
    job, out = trained
    other = "import sys, torch; s = torch.load(sys.argv[1]); s['shape']['width'] = 10; torch.save(s, sys.argv[2])"
    model, made = out / "checkpoints" / "step-00000040" / "model.pt", tmp_path / "model.pt"
    subprocess.run([job.python, "-W", "ignore", "-c", other, model, made], check=True)
    refused = job.run("complete.py", forged(tmp_path / "step-00000001", made.read_bytes()))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "holds a model of another shape than this program makes" in refused.stderr


def test_loading_a_checkpoint_runs_no_code_that_came_with_it(trained: tuple[Job, Path], tmp_path: Path) -> None:
    job, _ = trained
    ran = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (ran,))

    hostile = forged(tmp_path / "step-00000001", pickle.dumps({"shape": Payload()}))
    refused = job.run("complete.py", hostile)
    assert refused.returncode == 2
    assert "can't be loaded" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not ran.exists()
