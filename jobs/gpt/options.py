"""The options of `train.py`: what a run is made of, the presets, and how the command line becomes `Options`.

A preset is only a set of defaults: an option that is given wins, wherever it stands on the line.
No torch here, so that a mistyped option is refused before the slow import.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NoReturn

PROMPT = '"Elementary, my dear'
DEVICES = ("auto", "cpu", "cuda", "xla", "tpu")
BLOCKS = ("workshop", "usual")


@dataclass(frozen=True)
class Options:
    """One run. The defaults are the workshop's settings."""

    # the model
    context: int = 128  # bytes the model sees at once
    width: int = 32  # size of the vector that stands for one byte
    mlp: int = 64  # hidden size of each block's MLP
    heads: int = 4
    layers: int = 4
    dropout: float = 0.0
    block: str = "workshop"
    attention_only: bool = False
    tie_weights: bool = False
    # the training
    steps: int = 50_000
    batch: int = 32
    lr: float = 0.001
    schedule: str = "constant"
    warmup: int = 0
    seed: int = 0
    corpus: str | None = None
    device: str = "auto"
    threads: int | None = None
    amp: str | None = None
    compile: bool = False
    scan: bool = False
    steps_per_launch: int = 1
    profile: bool = False
    # what it leaves
    eval_every: int = 100
    eval_batch: int = 256
    checkpoint_every: int = 1_000
    keep: int = 2
    prompt: tuple[str, ...] = (PROMPT,)
    length: int = 200
    temperature: float = 1.0
    out: str = "out"
    resume: str | None = None
    track: str = "none"


PRESETS: dict[str, dict[str, object]] = {
    "workshop": {},
    # As large as one core of a v3 likes: its matrices come in multiples of 128, and its memory is half full.
    "small": {
        "context": 256, "width": 512, "mlp": 2048, "heads": 4, "layers": 8, "block": "usual", "dropout": 0.1,
        "batch": 64, "lr": 0.0005, "schedule": "cosine", "warmup": 200, "steps": 10_000, "amp": "bf16",
        "eval_batch": 64,
    },
    # Words and line breaks in a minute or two on a laptop; eight at once in three minutes on two cores.
    "demo": {
        "context": 64, "width": 64, "mlp": 128, "layers": 2, "block": "usual", "batch": 8, "lr": 0.003,
        "steps": 2_000, "eval_batch": 128, "checkpoint_every": 250, "temperature": 0.8, "threads": 1,
    },
}  # fmt: skip


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """The options of a command line (of this process when None). Bad values: one sentence, exit code 2."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    preset = PRESETS[given.pop("preset", "workshop")]
    options = Options(**{**preset, **given, **({"prompt": tuple(given["prompt"])} if "prompt" in given else {})})
    if options.width % options.heads:
        parser.error(f"--width {options.width} does not divide into --heads {options.heads}")
    for name in ("steps", "eval_every", "checkpoint_every"):
        if (count := getattr(options, name)) % options.steps_per_launch:
            flag = "--" + name.replace("_", "-")
            parser.error(f"{flag} {count} is no multiple of --steps-per-launch {options.steps_per_launch}")
    return options


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses with one sentence instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        shown = "".join(c if c.isprintable() else "\ufffd" for c in message)
        self.exit(2, f"{self.prog}: {shown}; --help shows every option\n")


def integer(least: int, most: int) -> Callable[[str], int]:
    """An argparse type: a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    return parse


def number(fits: Callable[[float], bool], what: str) -> Callable[[str], float]:
    """An argparse type: a finite number that `fits`; `what` says in words which do."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not math.isfinite(value) or not fits(value):
            raise argparse.ArgumentTypeError(f"{text} is not {what}")
        return value

    return parse


def precision(text: str) -> str | None:
    """An argparse type: what matrix products are done in, None for as precisely as everything else."""
    if text not in ("none", "bf16"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither none nor bf16")
    return None if text == "none" else text


def named(text: str) -> str:
    """An argparse type: a name of something; an empty one is a variable that a shell did not know."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; leave it out, or name something")
    return text


def prompt(text: str) -> str:
    """An argparse type: a prompt, which must hold at least one byte for the model to go on from."""
    if not text:
        raise argparse.ArgumentTypeError("the prompt is empty; the model needs at least one byte to go on from")
    return text


SWITCH = argparse.BooleanOptionalAction  # --scan and --no-scan: a sweep can name both, and undo what a preset says
SEED = integer(0, 2**63 - 1)
LENGTH = integer(1, 65_536)  # the dice for all bytes are thrown beforehand, a kilobyte of them for each
TEMPERATURE = number(lambda value: value >= 0, "zero or more")
_SIZE = integer(1, 65_536)
_COUNT = integer(1, 10**9)


def _parser() -> Parser:
    parser = Parser(
        description="Train a small GPT on the bytes of a text.",
        epilog=f"Defaults are the workshop's. --preset demo: {_in_words(PRESETS['demo'])}.",
        argument_default=argparse.SUPPRESS,  # what is not given stays out, so that the preset can say it
        allow_abbrev=False,
    )
    default = {field.name: field.default for field in fields(Options)}

    def add(group: argparse._ArgumentGroup, name: str, text: str, **keywords: object) -> None:
        value = default[name.removeprefix("--").replace("-", "_")]
        shown = "" if value is None or value is False else f" [{value}]"
        group.add_argument(name, help=text + shown, **keywords)  # pyright: ignore[reportArgumentType]

    parser.add_argument("--preset", choices=sorted(PRESETS), help="a set of defaults [workshop]")

    model = parser.add_argument_group("the model")
    add(model, "--context", "bytes it sees at once", type=_SIZE, metavar="N")
    add(model, "--width", "size of the vector that stands for a byte", type=_SIZE, metavar="N")
    add(model, "--mlp", "hidden size of the MLPs", type=_SIZE, metavar="N")
    add(model, "--heads", "attention heads of a block", type=_SIZE, metavar="N")
    add(model, "--layers", "blocks", type=integer(1, 1_000), metavar="N")
    add(model, "--dropout", "share dropped in training", type=number(lambda x: 0 <= x < 1, "from 0 to below 1"))
    add(model, "--block", "usual: a projection after attention, and what came in added once", choices=BLOCKS)
    add(model, "--attention-only", "leave the MLPs out", action=SWITCH)
    add(model, "--tie-weights", "read and write a byte as the same vector", action=SWITCH)

    training = parser.add_argument_group("the training")
    add(training, "--steps", "steps in all", type=_COUNT, metavar="N")
    add(training, "--batch", "windows of text in a step", type=_SIZE, metavar="N")
    add(training, "--lr", "Adam's learning rate", type=number(lambda x: x > 0, "above 0"), metavar="RATE")
    add(training, "--schedule", "the rate over time; cosine ends at a tenth", choices=("constant", "cosine"))
    add(training, "--warmup", "steps over which the rate rises at first", type=integer(0, 10**9), metavar="N")
    add(training, "--seed", "of the weights, batches, dropout and completions", type=SEED, metavar="N")
    add(
        training,
        "--corpus",
        "file, URL#sha256=HEX or builtin:python-docs [Sherlock Holmes]",
        type=named,
        metavar="TEXT",
    )

    machine = parser.add_argument_group("the machine")
    add(machine, "--device", "xla (a TPU by torch_xla), tpu (by torch_tpu), cuda, cpu, auto", choices=DEVICES)
    add(machine, "--threads", "CPU threads [torch's own choice]", type=integer(1, 1_024), metavar="N")
    add(machine, "--amp", "matrix products in half precision", type=precision, metavar="none|bf16")
    add(machine, "--compile", "the training step by torch.compile", action=SWITCH)
    add(machine, "--scan", "the blocks as one loop (torch_xla): quicker to compile", action=SWITCH)
    add(machine, "--steps-per-launch", "steps that torch_xla runs in one go", type=integer(1, 1_000), metavar="N")
    add(machine, "--profile", "record where the time of one step goes, into profile/", action=SWITCH)

    left = parser.add_argument_group("what it leaves (in $TPUFLEET_RUN_DIR if that is set)")
    add(left, "--out", "directory to write to", type=named, metavar="DIR")
    add(left, "--eval-every", "steps between evaluations", type=_COUNT, metavar="N")
    add(left, "--eval-batch", "windows of text in an evaluation", type=_SIZE, metavar="N")
    add(left, "--checkpoint-every", "steps between checkpoints", type=_COUNT, metavar="N")
    add(left, "--keep", "checkpoints that are kept", type=integer(1, 10**6), metavar="N")
    parser_prompt = {"action": "append", "type": prompt, "metavar": "TEXT"}
    left.add_argument("--prompt", help=f"to be completed; may be repeated [{PROMPT}]", **parser_prompt)  # pyright: ignore
    add(left, "--length", "bytes of a completion", type=LENGTH, metavar="N")
    add(left, "--temperature", "of a completion; 0 is always the likeliest byte", type=TEMPERATURE, metavar="T")
    add(left, "--track", "tells the losses to Weights & Biases or trackio, too", choices=("none", "wandb", "trackio"))
    add(left, "--resume", "a checkpoint to go on from, or auto: the newest in --out", type=named, metavar="DIR|auto")
    return parser


def _in_words(preset: dict[str, object]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in preset.items())
