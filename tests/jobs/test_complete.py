"""Completions from a checkpoint."""

import hashlib
import json
import pickle
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from .trainings import Trainings, refusal


@pytest.fixture
def complete(trained: tuple[Trainings, Path]) -> Trainings:
    """complete.py."""
    return trained[0].beside("complete.py")


@pytest.fixture
def out(trained: tuple[Trainings, Path]) -> Path:
    """What it may complete with: a finished tiny training."""
    return trained[1]


def test_a_seed_gives_the_same_completion_from_a_checkpoint_as_from_its_directory(
    complete: Trainings, out: Path
) -> None:
    newest = out / "checkpoints" / "step-00000040"
    said = [
        complete.run(where, "It is", "--seed", seed, "--length", "40").stdout
        for where, seed in ((out, "1"), (newest, "1"), (out, "2"))
    ]
    assert said[0].startswith("It is")
    assert said[0] == said[1] != said[2]


def test_a_prompt_longer_than_the_context_goes_on_from_its_last_bytes(complete: Trainings, out: Path) -> None:
    end = "0123456789abcdef"  # as long as the context
    long = complete.run(out, "once upon a time " * 50 + end, "--length", "30")
    assert (long.returncode, long.stderr) == (0, "complete.py: the prompt has 866 bytes; this model sees the last 16\n")
    assert long.stdout.endswith(complete.run(out, end, "--length", "30").stdout)


def test_what_a_model_says_cannot_steer_the_terminal(complete: Trainings, out: Path) -> None:
    hot = complete.run(out, "\x1b[31m\xff", "--temperature", "50", "--length", "400")
    assert hot.returncode == 0
    assert not set(hot.stdout) & {chr(c) for c in [*range(9), *range(11, 32), *range(127, 160)]}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGPIPE])
def test_a_text_comes_byte_by_byte_into_a_pipe_and_ends_without_a_word(
    complete: Trainings, out: Path, end: signal.Signals
) -> None:
    with complete.start(out, "It is", "--length", "65536") as process:
        try:
            assert process.stdout
            assert process.stderr
            assert process.stdout.read(30).startswith("It is")
            assert process.poll() is None  # most of the text is still to come
            if end == signal.SIGINT:  # Ctrl-C
                process.send_signal(end)
            else:  # `| head`
                process.stdout.close()
            assert (process.stderr.read(), process.wait()) == ("", -end)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["{out}", ""], 2, "the prompt is empty"),
        (["nowhere"], 2, "there is no whole checkpoint in nowhere"),
        (["{out}", "--device", "cuda"], 1, "can't use a GPU"),
    ],
)
def test_bad_input_is_one_sentence(complete: Trainings, out: Path, arguments: list[str], code: int, says: str) -> None:
    assert says in refusal(complete.run(*[argument.format(out=out) for argument in arguments]), code)


def test_a_damaged_checkpoint_does_not_speak(complete: Trainings, out: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "step-00000040"
    shutil.copytree(out / "checkpoints" / "step-00000040", damaged)
    (damaged / "model.pt").write_bytes(b"x" * (damaged / "model.pt").stat().st_size)
    assert "is damaged: model.pt" in refusal(complete.run(damaged), 2)


def forged(directory: Path, data: bytes) -> Path:
    """A checkpoint whose manifest is in order and whose model is `data`."""
    directory.mkdir()
    (directory / "model.pt").write_bytes(data)
    file = {"path": "model.pt", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (directory / "manifest.json").write_text(json.dumps({"step": 1, "files": [file]}))
    return directory


@pytest.mark.parametrize("change", ["['width'] = 10", "['heads'] = 3", "['layers'] = 0.5", ".clear()"])
def test_a_checkpoint_of_another_shape_does_not_speak(
    complete: Trainings, out: Path, tmp_path: Path, change: str
) -> None:
    model, made, other = (
        out / "checkpoints" / "step-00000040" / "model.pt",
        tmp_path / "model.pt",
        tmp_path / "other.py",
    )
    other.write_text(f"import sys, torch; s = torch.load(sys.argv[1]); s['shape']{change}; torch.save(s, sys.argv[2])")
    assert replace(complete, program=other).run(model, made).returncode == 0
    refused = refusal(complete.run(forged(tmp_path / "step-00000001", made.read_bytes())), 2)
    assert "holds a model of another shape than this program makes" in refused


def test_loading_a_checkpoint_runs_no_code_that_came_with_it(complete: Trainings, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (ran,))

    hostile = forged(tmp_path / "step-00000001", pickle.dumps({"shape": Payload()}))
    assert "can't be loaded" in refusal(complete.run(hostile), 2)
    assert not ran.exists()
