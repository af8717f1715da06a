"""Trains a small GPT on the bytes of a text: `python train.py --preset demo`.

It leaves, in one directory: `metrics.jsonl` (losses by step), `completions.jsonl` (how the model goes on
from a prompt, by step) and `checkpoints/`. Stopped, killed or moved to another machine, it goes on from its
newest checkpoint; on a CPU its losses are then, to the last bit, as if nothing had happened. Under tpufleet
the environment says where to write and what to resume: TPUFLEET_RUN_DIR, TPUFLEET_RESUME.
"""

import contextlib
import os
import signal
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from options import Options, parse_options

if __name__ == "__main__":  # before torch is imported, which takes seconds
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to save (Stop), Ctrl-C just ends it
    parse_options()  # refuses what is mistyped

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch does without it, and so do we
    import torch

import checkpoint
import device as devices
import records
import text
import track
from checkpoint import CheckpointError
from device import DeviceError
from report import Reporter
from text import Text, TextError, printable
from track import TrackError
from training import Training, Windows, shape_of

PROFILE_AFTER = 5  # launches: by then everything is compiled and warm
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "RESOURCE_EXHAUSTED")  # how torch and XLA say it


def train(options: Options) -> int:
    """Runs the training that `options` describe, from the beginning or a checkpoint; returns the exit code."""
    out = Path(os.environ.get("TPUFLEET_RUN_DIR") or options.out)
    checkpoints = out / "checkpoints"

    device = devices.choose(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    threads = torch.get_num_threads()
    say(f"device   {device.name} ({device.why}), torch {torch.__version__}, {threads} thread{'s' * (threads > 1)}")

    found = checkpoint.to_go_on_from(out, options.resume)
    saved = read_saved(found, options) if found else None
    source = find_text(options, saved)
    learning, testing = source.split(options.context)
    say(f"text     {source.source}: {len(learning):,} bytes to train on, {len(testing):,} to test on")

    training = Training(options, Windows(learning, options.context, device), device)
    parameters = sum(weights.numel() for weights in training.model.parameters())
    if saved:
        restore(training, saved)
    say(f"model    {parameters:,} parameters, {f'as of step {training.step}' if saved else 'untrained'}")

    if training.step >= options.steps:
        say(f"done     step {training.step} was reached before; --steps asks for more than {options.steps}")
        return 0

    checkpoint.claim(out)
    say(f"writing  {out}")
    about = {
        "device": device.name,
        "torch": torch.__version__,
        "threads": threads,
        "parameters": parameters,
        "text": source.source,
        "text_sha256": source.sha256,
        "resumed_from": training.step if saved else None,
    }
    told = records.last_step(out / "metrics.jsonl") if saved else None
    tracker = track.start(options.track, {**asdict(options), "parameters": parameters}, out, told, say)
    begin_at(out, training.step if saved else None)
    reporter = Reporter(out, options, Windows(testing, options.context, device), about, tracker)
    try:
        return go_on(training, reporter, source, checkpoints, fresh=saved is None)
    finally:
        if tracker:
            tracker.finish()


def go_on(training: Training, reporter: Reporter, source: Text, checkpoints: Path, *, fresh: bool) -> int:
    """Trains to the last step or until stopped, telling and saving on the way; returns the exit code."""
    options, out = training.options, reporter.out
    stop = Stop()
    if fresh:
        reporter.report(training)
    reporter.start_clock(training.step)
    profiled = training.step + PROFILE_AFTER * options.steps_per_launch if options.profile else None
    while training.step < options.steps:
        with training.device.profile(out / "profile") if training.step == profiled else contextlib.nullcontext():
            training.advance()
        done = training.step == options.steps
        if done or training.step % options.eval_every == 0:
            reporter.report(training)
        if done or stop.signal or training.step % options.checkpoint_every == 0:
            save(training, source, checkpoints)
        if stop.signal and not done:
            name = signal.Signals(stop.signal).name
            say(f"stopped  by {name} at step {training.step}, which is saved; --resume auto goes on")
            return 128 + stop.signal
    say(f"done     {training.step} steps; to hear more: python complete.py {out}")
    for spoken in reporter.spoken:
        say(f"\n{spoken}")
    return 0


@dataclass(frozen=True)
class Saved:
    """A verified checkpoint, read; see `Training.state` and `save` for what is in it."""

    path: Path
    model: dict[str, Any]
    training: dict[str, Any]


def read_saved(path: Path, options: Options) -> Saved:
    """Reads a checkpoint and sees that it fits the options. Raises CheckpointError."""
    checkpoint.verify(path)
    saved = Saved(path, checkpoint.load(path, "model"), checkpoint.load(path, "training"))
    wanted = asdict(shape_of(options))
    try:
        shape = dict(saved.model["shape"])
        # dropout has no weights: it may be another from now on; an old checkpoint says nothing of tied weights
        other = [name for name in wanted if shape.get(name, False) != wanted[name] and name != "dropout"]
    except checkpoint.UNFIT:
        raise unfit(saved.path) from None
    if other:
        differences = ", ".join(f"{name} {shape.get(name)}, not {wanted[name]}" for name in other)
        raise CheckpointError(f"{path} is of another model: {differences}")
    return saved


def restore(training: Training, saved: Saved) -> None:
    """Takes `training` to where the checkpoint was written. Raises CheckpointError."""
    try:
        training.restore(saved.model, saved.training)
    except checkpoint.UNFIT:
        raise unfit(saved.path) from None


def unfit(path: Path) -> CheckpointError:
    """What is said of a checkpoint whose files are as its manifest says, and not as `save` writes them."""
    return CheckpointError(f"{path} is not a checkpoint of this program, or of another version of it")


def find_text(options: Options, saved: Saved | None) -> Text:
    """The text that was asked for, else the checkpoint's, else the usual one. Raises TextError, CheckpointError."""
    named = options.corpus or os.environ.get("TPUFLEET_CORPUS")
    if saved is None:
        return text.load(named, say)
    try:
        source_before, sha256_before = (str(saved.training["text"][name]) for name in ("source", "sha256"))
    except checkpoint.UNFIT:
        raise unfit(saved.path) from None
    source = text.load(named or source_before, say)
    if source.sha256 != sha256_before:
        raise CheckpointError(f"{saved.path} was trained on another text: {source_before}")
    return source


def begin_at(out: Path, step: int | None) -> None:
    """Makes `out` ready to go on from `step` (None: from the beginning), without what came after it."""
    after = -1 if step is None else step
    checkpoint.cut(out / "checkpoints", after)
    for name in ("metrics.jsonl", "completions.jsonl"):
        records.cut(out / name, after)


def save(training: Training, source: Text, checkpoints: Path) -> None:
    """Writes a checkpoint, then removes the oldest ones."""
    parts = training.state()
    parts["training"]["text"] = {"source": source.source, "sha256": source.sha256}
    checkpoint.save(checkpoints, training.step, parts)
    checkpoint.prune(checkpoints, training.options.keep)


class Stop:
    """Remembers SIGTERM or Ctrl-C, so that the step at hand is saved first; a second Ctrl-C ends at once.

    A second SIGTERM is nothing new: who stops a tree of processes may well reach one of them twice.
    """

    def __init__(self) -> None:
        self.signal = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def say(line: str) -> None:
    print(printable(line), flush=True)


def main() -> int:
    """Runs the command line; what a person can mend is one sentence. 0 done, 1 machine, 2 asked for the wrong."""
    sys.stdout.reconfigure(errors="replace")
    options = parse_options()
    try:
        return train(options)
    except (TextError, CheckpointError, TrackError) as error:
        sentence, code = str(error), 2
    except DeviceError as error:
        sentence, code = str(error), 1
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its end
        sentence, code = "nobody reads what this prints any more; --resume auto goes on from the newest checkpoint", 1
    except OSError as error:  # a full disk, a directory one may not write to
        sentence, code = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1
    except RuntimeError as error:
        if not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        sentence, code = f"{str(error).splitlines()[0]}; less does with a smaller --batch, --width or --context", 1
    print(f"train.py: {printable(sentence)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
