"""What makes a Lightning training a run of tpufleet's: two small parts for any Trainer.

    Trainer(logger=Records(out), callbacks=[Checkpoints(out, every=1000, keep=2)], enable_checkpointing=False)

The files are those of `../gpt`, whose `records`, `checkpoint` and `device` are used here: `metrics.jsonl`, and
`checkpoints/step-00001000/` with a manifest, whole or absent.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
from argparse import Namespace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers.logger import Logger

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpt"))
import checkpoint
import device as devices
import records

PART = "lightning"  # lightning.pt: Lightning's own file


class Records(Logger):
    """A line of `metrics.jsonl` for everything that is logged; hyper-parameters become `setup` of the next one."""

    name, version = "tpufleet", os.environ.get("TPUFLEET_RUN_ID", "")

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.path = out / "metrics.jsonl"
        self.setup: dict[str, Any] = {}

    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        self.setup = {"setup": vars(params) if isinstance(params, Namespace) else dict(params)}

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        told = {name: value for name, value in metrics.items() if name != "epoch"}  # a text has none
        records.append(self.path, {"step": step, **told, **self.setup})
        self.setup = {}


class Checkpoints(Callback):
    """Saves when `every` steps have passed, at the end, and when SIGTERM or Ctrl-C ends the training (with 143, 130).

    After the evaluation of that step if it has one, so that whoever resumes neither lacks its record nor counts a
    loss twice. The state of the random numbers is saved, too, which Lightning leaves to us.
    """

    def __init__(self, out: Path, every: int, keep: int) -> None:
        self.directory, self.every, self.keep = out / "checkpoints", every, keep
        self.saved = 0  # the step of the newest one
        self.signal = 0  # what the training is to end by
        self.random: dict[str, Any] | None = None  # what a resumed training has yet to take up

    def setup(self, _trainer: Trainer, _module: LightningModule, **_: Any) -> None:
        """The first Ctrl-C and every SIGTERM are remembered until the step at hand is saved."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.saved = trainer.global_step
        self.setup(trainer, module)  # Lightning has put a handler of its own before ours, which saves nothing

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        """The last moment before dropout: what Lightning makes at a start draws random numbers as well."""
        if self.random is not None:
            torch.set_rng_state(self.random["torch"])
            random.setstate(self.random["python"])
            device_of(trainer).set_random_state(self.random["device"])
            self.random = None

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if not evaluates(trainer):
            self._after_step(trainer)

    def on_validation_end(self, trainer: Trainer, _module: LightningModule) -> None:
        self._after_step(trainer)

    def on_train_end(self, trainer: Trainer, _module: LightningModule) -> None:
        if trainer.global_step > self.saved:
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Lightning's own file with a manifest beside it, written aside and renamed; then the oldest go."""
        self.saved = step = trainer.global_step
        final = self.directory / f"step-{step:08d}"
        aside = final.with_name(f".{final.name}")
        aside.mkdir(parents=True)
        path = aside / f"{PART}.pt"
        try:
            trainer.save_checkpoint(path)
            data = path.read_bytes()
            file = {"path": path.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            (aside / checkpoint.MANIFEST).write_text(json.dumps({"step": step, "files": [file]}))
            for written in (path, aside / checkpoint.MANIFEST, aside):
                sync(written)
            aside.rename(final)
        except OSError:  # a full disk is not filled further
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync(self.directory)
        checkpoint.prune(self.directory, self.keep)

    def on_save_checkpoint(self, trainer: Trainer, _module: LightningModule, saved: dict[str, Any]) -> None:
        device = device_of(trainer).random_state()
        saved["random"] = {"torch": torch.get_rng_state(), "python": random.getstate(), "device": device}

    def on_load_checkpoint(self, _trainer: Trainer, _module: LightningModule, saved: dict[str, Any]) -> None:
        self.random = saved["random"]

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends at once

    def _after_step(self, trainer: Trainer) -> None:
        """Saves if it is time to, and ends the training if a signal asked for that; the last step is saved anyway."""
        passed = trainer.global_step - self.saved
        if trainer.global_step == trainer.max_steps or not passed:
            return
        if self.signal or passed >= self.every:
            self.save(trainer)
        if self.signal:
            name = signal.Signals(self.signal).name
            print(f"stopped  by {name} at step {self.saved}, which is saved; --resume auto goes on", flush=True)
            raise SystemExit(128 + self.signal)


def evaluates(trainer: Trainer) -> bool:
    """Whether an evaluation follows the step at hand, as Lightning counts it."""
    loop = trainer.fit_loop
    step = loop.total_batch_idx if trainer.check_val_every_n_epoch is None else loop.batch_idx
    return (step + 1) % trainer.val_check_batch == 0


def device_of(trainer: Trainer) -> devices.Device:
    """The device that Lightning chose, as `../gpt` knows it."""
    return devices.chosen(trainer.strategy.root_device, "Lightning chose it")


def sync(path: Path) -> None:
    """Brings a file, or the names in a directory, through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
