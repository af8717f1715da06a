"""The model of `../gpt` as a LightningModule: `python train.py --preset demo`.

Lightning finds the device (`Trainer(accelerator="auto", devices=1)`), moves things there and runs the loop;
`contract.py` has its records and checkpoints where tpufleet looks for them. The options are those of
`../gpt/train.py`, and two of Lightning's TPU guide: --precision and --metrics-report.
"""

import itertools
import logging
import os
import random
import sys
import time
import warnings
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, IterableDataset

from contract import PART, Checkpoints, Records, checkpoint, device_of, records  # isort: skip  it finds ../gpt
import text
import track
from checkpoint import CheckpointError
from complete import complete
from device import DeviceError, automatic
from model import GPT, in_turn
from options import Options, Parser, parse_options
from text import TextError, printable
from training import rate, shape_of

PRECISIONS = ("32-true", "bf16-true", "bf16-mixed")
SHOWN = ("train_loss", "steps_per_second", "test_loss")  # in the line on the terminal


class LightningGPT(LightningModule):
    """Training, evaluation and completion of a GPT, as Lightning's loop calls for them."""

    def __init__(self, options: Options, about: dict[str, Any], tracker: track.Tracker | None) -> None:
        super().__init__()
        self.options, self.about, self.tracker = options, about, tracker
        self.gpt = GPT(shape_of(options)).on(torch.device("cpu"))  # tied here; a TPU unties, and Lightning ties again
        self.training_loss = self.gpt.loss
        self.since: list[Any] = []  # losses since the last evaluation; to look at them would be to wait for the device
        self.clock, self.clock_step = time.monotonic(), 0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.options.lr)

    def training_step(self, windows: torch.Tensor) -> torch.Tensor:
        loss = self.training_loss(windows[:, :-1], windows[:, 1:])
        self.since.append(loss.detach())
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:  # from the options, which may be others when a training is resumed
            group["lr"] = rate(self.options, self.global_step)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step == self.options.steps:
            self.trainer.should_stop = True  # which has Lightning evaluate the last step, whatever its number

    def validation_step(self, windows: torch.Tensor) -> None:
        metrics: dict[str, Any] = {"steps": self.options.steps}
        if self.since:
            losses = [torch.as_tensor(loss, device=self.device) for loss in self.since]  # numbers, if from a checkpoint
            metrics["train_loss"] = float(torch.stack(losses).float().mean())
            seconds = max(time.monotonic() - self.clock, 1e-9)
            metrics["steps_per_second"] = round((self.global_step - self.clock_step) / seconds, 2)
            self.since = []
        metrics["test_loss"] = float(self.gpt.loss(windows[:, :-1], windows[:, 1:]))
        metrics |= device_of(self.trainer).counts()
        self.logger.log_metrics(metrics, self.global_step)
        if self.tracker:
            self.tracker.log(self.global_step, {name: metrics[name] for name in metrics.keys() - {"steps"}})
        said = self.let_speak(Path(self.logger.path).with_name("completions.jsonl"))
        shown = "  ".join(f"{name} {metrics[name]:.3f}" for name in SHOWN if name in metrics)
        print(printable(f"step {self.global_step:>6}/{self.options.steps}  {shown}  {said[:60]}"), flush=True)
        self.start_clock()

    def let_speak(self, path: Path) -> str:
        """Records how the model goes on from each prompt; what it said to the last of them, on one line."""
        said = ""
        for prompt in self.options.prompt:
            start = prompt.encode(errors="surrogateescape")
            how = {"length": self.options.length, "temperature": self.options.temperature}
            seed = (self.options.seed + self.global_step) % 2**63
            following = complete(self.gpt, device_of(self.trainer), start, seed=seed, **how)
            said = following.decode(errors="replace")
            told = {"step": self.global_step, "prompt": start.decode(errors="replace"), "text": said}
            records.append(path, told)
        return " ".join(said.split())

    def start_clock(self) -> None:
        self.clock, self.clock_step = time.monotonic(), self.global_step

    on_train_start = start_clock

    def on_save_checkpoint(self, saved: dict[str, Any]) -> None:
        saved |= {"about": self.about, "since": [float(loss) for loss in self.since]}

    def on_load_checkpoint(self, saved: dict[str, Any]) -> None:
        self.since = list(saved["since"])


class Batches(IterableDataset):
    """(batch, context + 1) bytes for each step from `begin()` on; they follow from the seed and the step alone."""

    def __init__(self, data: torch.Tensor, options: Options, begin: Callable[[], int]) -> None:
        self.data, self.options, self.begin = data, options, begin

    def __iter__(self) -> Iterator[torch.Tensor]:
        for step in itertools.count(self.begin()):
            dice = random.Random((self.options.seed << 32) + step)  # noqa: S311  no secret
            starts = [dice.randrange(len(self.data) - self.options.context) for _ in range(self.options.batch)]
            yield windows(self.data, starts, self.options.context)


def windows(data: torch.Tensor, starts: list[int], context: int) -> torch.Tensor:
    """(B, context + 1) bytes of a text, as numbers."""
    return data[torch.tensor(starts)[:, None] + torch.arange(context + 1)].long()


def find_saved(options: Options, out: Path) -> tuple[Path | None, dict[str, Any]]:
    """The checkpoint to go on from, as `../gpt` finds it, and what it tells of itself. Raises CheckpointError."""
    found = checkpoint.to_go_on_from(out, options.resume)
    if found is None:
        return None, {}
    checkpoint.verify(found)
    about = checkpoint.load(found, PART).get("about", {})
    shape, asked = about.get("shape", {}), asdict(shape_of(options))
    # dropout has no weights: it may be another from now on
    other = [name for name in asked if shape.get(name) != asked[name] and name != "dropout"]
    if other:
        differences = ", ".join(f"{name} {shape.get(name)}, not {asked[name]}" for name in other)
        raise CheckpointError(f"{found} is of another model: {differences}")
    return found, about


def find_text(options: Options, saved: Path | None, about: dict[str, Any]) -> text.Text:
    """The text that was asked for, else the checkpoint's, else the usual one. Raises TextError, CheckpointError."""
    source = text.load(options.corpus or os.environ.get("TPUFLEET_CORPUS") or about.get("text"))
    if saved and source.sha256 != about["text_sha256"]:
        raise CheckpointError(f"{saved} was trained on another text: {about['text']}")
    return source


def make_trainer(options: Options, own: Namespace, out: Path) -> Trainer:
    """A Trainer for the device that is asked for. Raises DeviceError when that is not there."""
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        trainer = Trainer(
            accelerator={"auto": "auto", "cpu": "cpu", "cuda": "cuda", "xla": "tpu"}[options.device],
            devices=1,
            precision=own.precision,
            max_steps=options.steps,
            val_check_interval=options.eval_every,
            check_val_every_n_epoch=None,  # a text has no epochs
            num_sanity_val_steps=0,
            logger=Records(out),
            callbacks=[Checkpoints(out, options.checkpoint_every, options.keep)],
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=sys.stdout.isatty(),
            default_root_dir=out,
        )
    except (MisconfigurationException, ImportError, RuntimeError, ValueError) as error:  # no torch_xla, no free chip
        raise DeviceError(f"Lightning can't use --device {options.device} here: {first_line(error)}") from None
    expected, why = (
        automatic(os.environ, Path("/dev")) if options.device == "auto" else (options.device, "it was asked to")
    )
    if expected == "xla" != trainer.strategy.root_device.type:
        raise DeviceError(f"Lightning took a {trainer.strategy.root_device.type}, though {why}")
    return trainer


def train(options: Options, own: Namespace) -> int:
    """Runs the training, from the beginning or a checkpoint; returns the exit code."""
    out = Path(os.environ.get("TPUFLEET_RUN_DIR") or options.out)
    trainer = make_trainer(options, own, out)
    saved, about = find_saved(options, out)
    source = find_text(options, saved, about)
    learning, testing = (torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in source.split(options.context))
    step = checkpoint.verify(saved) if saved else -1
    if step >= options.steps:
        print(f"done     step {step} was reached before; --steps asks for more than {options.steps}")
        return 0

    device = device_of(trainer)
    run_blocks = device.scan() if options.scan else in_turn  # what it can't is told before anything is written
    backend = device.compiler() if options.compile else None
    checkpoint.claim(out)
    lightning.seed_everything(options.seed % 2**32)
    device.set_random_state(options.seed)
    about = {"shape": asdict(shape_of(options)), "text": source.source, "text_sha256": source.sha256}
    told = records.last_step(out / "metrics.jsonl") if saved else None
    tracker = track.start(options.track, asdict(options), out, told, print)
    begin_at(out, step)
    model = LightningGPT(options, about, tracker)
    model.gpt.run_blocks = run_blocks
    if backend:
        model.training_loss = torch.compile(model.gpt.loss, backend=backend, dynamic=False)
    parameters = sum(weights.numel() for weights in model.parameters())
    kind = f"{device.torch}, {own.precision}, lightning {lightning.__version__}"
    print(f"device   {kind}, {parameters:,} parameters, writing {out}", flush=True)
    trainer.logger.log_hyperparams({
        "device": str(device.torch), "precision": own.precision, "torch": torch.__version__,
        "lightning": lightning.__version__, "parameters": parameters, "text": source.source,
        "text_sha256": source.sha256, "resumed_from": step if saved else None,
    })  # fmt: skip

    last = len(testing) - options.context - 1
    spread = [number * last // max(options.eval_batch - 1, 1) for number in range(options.eval_batch)]
    evaluation = DataLoader([windows(testing, spread, options.context)], batch_size=None)
    batches = DataLoader(Batches(learning, options, lambda: trainer.global_step), batch_size=None)
    try:
        if not saved:
            trainer.validate(model, evaluation, verbose=False)
        trainer.fit(model, batches, evaluation, ckpt_path=saved and saved / f"{PART}.pt", weights_only=True)
    finally:
        if tracker:
            tracker.finish()
    if own.metrics_report:
        print(metrics_report(device.torch))
    return 0


def begin_at(out: Path, step: int) -> None:
    """Makes `out` ready to go on from `step` (-1: from the beginning), without what came after it."""
    checkpoint.cut(out / "checkpoints", step)
    for name in ("metrics.jsonl", "completions.jsonl"):
        records.cut(out / name, step)


def metrics_report(device: torch.device) -> str:
    """What torch_xla has counted, and how long each thing took."""
    if device.type != "xla":
        return f"there is no metrics report: that is torch_xla's, and this is a {device.type}"
    from torch_xla.debug import metrics

    return metrics.metrics_report()


def parse_arguments() -> tuple[Options, Namespace]:
    """The options of `../gpt`, and Lightning's own. Bad values, and what Lightning can't: one sentence, exit code 2."""
    parser = Parser(usage=SUPPRESS, add_help=False, allow_abbrev=False)
    parser.add_argument("--precision", choices=PRECISIONS, help="of the weights; mixed is --amp bf16 [32-true]")
    parser.add_argument("--metrics-report", action="store_true", help="torch_xla's own report at the end")
    own, rest = parser.parse_known_args()
    if {"-h", "--help"} & set(rest):
        parser.print_help()
    options = parse_options(rest)
    if options.device == "tpu":
        parser.error("--device tpu is torch_tpu's, which Lightning does not know; a TPU by torch_xla is --device xla")
    if options.steps_per_launch > 1:
        parser.error("--steps-per-launch is for ../gpt alone: Lightning takes one step at a time")
    if options.profile:
        parser.error("--profile is for ../gpt alone: Lightning has profilers of its own, Trainer(profiler=…)")
    if options.amp and own.precision:
        parser.error("--amp bf16 is --precision bf16-mixed; give one of the two")
    own.precision = own.precision or ("bf16-mixed" if options.amp else "32-true")
    return options, own


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def main() -> int:
    """Runs the command line; what a person can mend is one sentence. 0 done, 1 machine, 2 asked for the wrong."""
    sys.stdout.reconfigure(errors="replace")
    options, own = parse_arguments()
    for noisy in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")  # advice on workers, on GPUs, on resuming within an epoch
    try:
        return train(options, own)
    except (TextError, CheckpointError, track.TrackError) as error:
        sentence, code = str(error), 2
    except (DeviceError, OSError) as error:  # a full disk
        sentence, code = first_line(error), 1
    print(f"train.py: {printable(sentence)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the training began: there is nothing to save
        sys.exit(130)
