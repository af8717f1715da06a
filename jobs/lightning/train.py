"""The model of `../gpt` as a LightningModule: `python train.py --preset demo`.

Lightning finds the device (`Trainer(accelerator="auto", devices=1)`), moves things there and runs the loop;
`contract.py` has its records and checkpoints where tpufleet looks for them. The options are those of
`../gpt/train.py`, and some of Lightning's TPU guide: --precision, --tie-weights, --metrics-report.
"""

import itertools
import logging
import os
import random
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from torch.utils.data import DataLoader, IterableDataset

from contract import FILE, Checkpoints, Records, checkpoint, records  # isort: skip  it finds ../gpt for those below
import text
from complete import complete
from device import DeviceError, automatic, chosen
from model import GPT
from options import Options, Parser, parse_options
from training import shape_of


class LightningGPT(LightningModule):
    """Training, evaluation and completion of a GPT, as Lightning's loop calls for them."""

    def __init__(self, options: Options, about: dict[str, Any], *, tie_weights: bool) -> None:
        super().__init__()
        self.options, self.about = options, about  # `about` is saved, and must be the same in who resumes
        self.gpt = GPT(shape_of(options))
        if tie_weights:  # Lightning ties them again after the move to a TPU, which makes two of them
            self.gpt.scores.weight = self.gpt.bytes.weight
        self.since: list[Any] = []  # losses since the last evaluation; to look at them would be to wait for the device
        self.clock, self.clock_step = time.monotonic(), 0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.options.lr)

    def training_step(self, windows: torch.Tensor) -> torch.Tensor:
        loss = self.gpt.loss(windows[:, :-1], windows[:, 1:])
        self.since.append(loss.detach())
        return loss

    def validation_step(self, windows: torch.Tensor) -> None:
        metrics: dict[str, Any] = {"steps": self.options.steps}
        if self.since:
            losses = [torch.as_tensor(loss, device=self.device) for loss in self.since]  # numbers, if from a checkpoint
            metrics["train_loss"] = float(torch.stack(losses).float().mean())
            seconds = max(time.monotonic() - self.clock, 1e-9)
            metrics["steps_per_second"] = round((self.global_step - self.clock_step) / seconds, 2)
            self.since = []
        metrics["test_loss"] = float(self.gpt.loss(windows[:, :-1], windows[:, 1:]))
        self.logger.log_metrics({**metrics, **compilations(self.device)}, self.global_step)
        said = self.let_speak(Path(self.logger.path).with_name("completions.jsonl"))
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items() if name != "steps")
        print(text.printable(f"step {self.global_step:>6}/{self.options.steps}  {shown}  {said[:60]}"), flush=True)
        self.start_clock()

    def let_speak(self, path: Path) -> str:
        """Records how the model goes on from each prompt; what it said to the last of them, on one line."""
        said = ""
        for prompt in self.options.prompt:
            start = prompt.encode(errors="surrogateescape")
            device = chosen(self.device, "Lightning chose it")
            how = {"length": self.options.length, "temperature": self.options.temperature}
            following = complete(self.gpt, device, start, seed=self.options.seed + self.global_step, **how)
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


def compilations(device: torch.device) -> dict[str, float]:
    """How many programs torch_xla has compiled so far, and in how many seconds."""
    if device.type != "xla":
        return {}
    from torch_xla.debug import metrics

    count, nanoseconds, _ = metrics.metric_data("CompileTime") or (0, 0, [])
    return {"compilations": count, "compile_seconds": round(nanoseconds / 1e9, 3)}


def find_saved(options: Options, out: Path, about: dict[str, Any]) -> Path | None:
    """The checkpoint to go on from, as `../gpt` finds it. Raises CheckpointError when it does not fit `about`."""
    wanted = os.environ.get("TPUFLEET_RESUME") or options.resume
    found = checkpoint.find(Path(wanted)) if wanted and wanted != "auto" else checkpoint.newest(out / "checkpoints")
    if found is None:
        return None
    checkpoint.verify(found)
    if not wanted and not os.environ.get("TPUFLEET_RUN_DIR"):
        raise checkpoint.CheckpointError(f"{out} holds a training already: --resume auto goes on with it")
    before = torch.load(found / FILE, weights_only=True)["about"]
    if other := [f"{name} {before.get(name)}, not {about[name]}" for name in about if before.get(name) != about[name]]:
        raise checkpoint.CheckpointError(f"{found} is of another training: {', '.join(other)}")
    return found


def make_trainer(options: Options, own: Namespace, out: Path) -> Trainer:
    """A Trainer for the device that is asked for. Raises DeviceError when that is not there."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.device == "tpu":
        raise DeviceError(
            "--device tpu is torch_tpu's, which Lightning does not know; --device xla is a TPU by torch_xla"
        )
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
    except (MisconfigurationException, ImportError, RuntimeError) as error:  # no torch_xla, no chip, a busy one
        raise DeviceError(f"Lightning can't use --device {options.device} here: {error}") from None
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
    device = trainer.strategy.root_device
    source = text.load(options.corpus or os.environ.get("TPUFLEET_CORPUS"))
    learning, testing = (torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in source.split(options.context))
    about = {**asdict(shape_of(options)), "tie_weights": own.tie_weights, "text_sha256": source.sha256}
    saved = find_saved(options, out, about)
    step = checkpoint.verify(saved) if saved else -1
    out.mkdir(parents=True, exist_ok=True)
    checkpoint.cut(out / "checkpoints", step)
    for name in ("metrics.jsonl", "completions.jsonl"):
        records.cut(out / name, step)
    if step >= options.steps:
        print(f"step {step} was reached before; --steps asks for more than {options.steps}")
        return 0

    lightning.seed_everything(options.seed)
    model = LightningGPT(options, about, tie_weights=own.tie_weights)
    parameters = sum(weights.numel() for weights in model.parameters())
    print(f"device {device}, {own.precision}, lightning {lightning.__version__}, {parameters:,} parameters", flush=True)
    trainer.logger.log_hyperparams({
        **about, "text": source.source, "device": str(device), "lightning": lightning.__version__,
        "torch": torch.__version__, "parameters": parameters, "resumed_from": step if saved else None,
    })  # fmt: skip

    last = len(testing) - options.context - 1
    spread = [number * last // max(options.eval_batch - 1, 1) for number in range(options.eval_batch)]
    evaluation = DataLoader([windows(testing, spread, options.context)], batch_size=None)
    if not saved:
        trainer.validate(model, evaluation, verbose=False)
    batches = DataLoader(Batches(learning, options, lambda: trainer.global_step), batch_size=None)
    try:
        trainer.fit(model, batches, evaluation, ckpt_path=saved and saved / FILE, weights_only=True)
    except SIGTERMException:
        print(f"stopped by SIGTERM at step {trainer.global_step}, which is saved; --resume auto goes on")
        return 143
    if own.metrics_report and device.type == "xla":
        from torch_xla.debug import metrics

        print(metrics.metrics_report())
    return 0


def main() -> int:
    """Runs the command line; what a person can mend is one sentence. 0 done, 1 machine, 2 asked for the wrong."""
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--precision", choices=("32-true", "bf16-true", "bf16-mixed"), default="32-true")
    parser.add_argument("--tie-weights", action="store_true", help="the same weights for a byte that comes and goes")
    parser.add_argument("--metrics-report", action="store_true", help="torch_xla's own report at the end")
    own, rest = parser.parse_known_args()
    options = parse_options(rest)
    for noisy in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")  # advice on workers, on GPUs, on resuming within an epoch
    try:
        return train(options, own)
    except (text.TextError, checkpoint.CheckpointError) as error:
        sentence, code = str(error), 2
    except (DeviceError, OSError) as error:  # a full disk
        sentence, code = str(error).splitlines()[0], 1
    print(f"train.py: {text.printable(sentence)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
