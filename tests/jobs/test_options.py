"""The command line of the training job, without torch."""

import pytest

from .trainings import load_module

options = load_module("options")


def test_the_defaults_are_the_workshops_settings() -> None:
    run = options.parse_options([])
    assert (run.context, run.width, run.mlp, run.heads, run.layers) == (128, 32, 64, 4, 4)
    assert (run.batch, run.lr, run.steps, run.eval_every) == (32, 0.001, 50_000, 100)
    assert run.prompt == ('"Elementary, my dear',)


@pytest.mark.parametrize(
    "line",
    ["--preset demo --lr 0.001 --steps 7", "--lr 0.001 --steps 7 --preset demo", "--lr=0.001 --preset=demo --steps=7"],
)
def test_a_preset_is_only_defaults_wherever_it_stands(line: str) -> None:
    run = options.parse_options(line.split())
    assert (run.lr, run.steps, run.width) == (0.001, 7, 64)


def test_an_option_that_equals_the_usual_default_still_beats_the_preset() -> None:
    assert options.parse_options(["--preset", "demo", "--layers", "4"]).layers == 4


def test_what_a_preset_switches_on_can_be_switched_off_as_a_sweep_does() -> None:
    assert options.parse_options(["--preset", "small"]).amp == "bf16"
    assert options.parse_options(["--preset", "small", "--amp", "none"]).amp is None
    switches = ("attention-only", "tie-weights", "compile", "scan", "profile")
    names = [switch.replace("-", "_") for switch in switches]
    on = options.parse_options([f"--{switch}" for switch in switches])
    off = options.parse_options([f"--{switch}" for switch in switches] + [f"--no-{switch}" for switch in switches])
    assert [getattr(on, name) for name in names] == [True] * 5
    assert [getattr(off, name) for name in names] == [False] * 5


def test_prompts_may_be_repeated_and_replace_the_usual_one() -> None:
    assert options.parse_options(["--prompt", "It is", "--prompt", "Wat"]).prompt == ("It is", "Wat")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--steps 0", "--steps: 0 is not between 1 and"),
        ("--steps 1e3", "'1e3' is not a whole number"),
        ("--lr nan", "--lr: nan is not above 0"),
        ("--lr -1", "-1 is not above 0"),
        ("--lr fast", "'fast' is not a number"),
        ("--dropout 1", "from 0 to below 1"),
        ("--temperature inf", "inf is not zero or more"),
        ("--width 30", "--width 30 does not divide into --heads 4"),
        ("--heads 0", "--heads: 0 is not between"),
        ("--seed -1", "-1 is not between 0"),
        ("--preset tiny", "invalid choice: 'tiny'"),
        ("--device gpu", "invalid choice: 'gpu'"),
        ("--amp fp8", "'fp8' is neither none nor bf16"),
        ("--schedule linear", "invalid choice: 'linear'"),
        ("--warmup -1", "-1 is not between 0"),
        ("--steps-per-launch 7", "--steps 50000 is no multiple of --steps-per-launch 7"),
        ("--steps-per-launch 8", "--eval-every 100 is no multiple of --steps-per-launch 8"),
        ("--step 5", "unrecognized arguments"),
        ("--prompt=", "the prompt is empty"),
        ("--out=", "--out: it is empty"),
        ("--corpus=", "--corpus: it is empty"),
        ("--resume=", "--resume: it is empty"),
        ("--length 65537", "65537 is not between 1 and 65536"),
        ("\x1b]0;title\x07", "unrecognized arguments: \ufffd]0;title\ufffd"),
        ("--threads 0", "0 is not between 1"),
        ("stray", "unrecognized arguments: stray"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        options.parse_options(line.split())
    shown = capsys.readouterr().err
    assert refusal.value.code == 2
    assert says in shown
    assert shown.count("\n") == 1


def test_help_names_every_option_and_what_it_is_when_not_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        options.parse_options(["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    for name in options.Options.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in shown
    assert "[50000]" in shown
    assert "lr 0.003" in shown
