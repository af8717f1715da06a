"""What makes a Lightning training a run of tpufleet's: two small parts for any Trainer.

    Trainer(logger=Records(out), callbacks=[Checkpoints(out, every=1000, keep=2)], enable_checkpointing=False)

The files are those of `../gpt`, whose `records` and `checkpoint` are used here: `metrics.jsonl`, and
`checkpoints/step-00001000/` with a manifest, whole or absent.
"""

import hashlib
import json
import os
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.exceptions import SIGTERMException

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpt"))
import checkpoint
import records

FILE = "lightning.ckpt"


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
    """Saves after an evaluation when `every` steps have passed, at the end, and when SIGTERM ends the training.

    After the evaluation, so that whoever resumes neither lacks its record nor counts a loss twice.
    """

    def __init__(self, out: Path, every: int, keep: int) -> None:
        self.directory, self.every, self.keep = out / "checkpoints", every, keep
        self.saved = 0

    def on_train_start(self, trainer: Trainer, _module: LightningModule) -> None:
        self.saved = trainer.global_step

    def on_validation_end(self, trainer: Trainer, _module: LightningModule) -> None:
        if trainer.global_step - self.saved >= self.every:
            self.save(trainer)

    def on_train_end(self, trainer: Trainer, _module: LightningModule) -> None:
        if trainer.global_step > self.saved:
            self.save(trainer)

    def on_exception(self, trainer: Trainer, _module: LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SIGTERMException) and trainer.global_step > self.saved:
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Lightning's own file with a manifest beside it, written aside and renamed; then the oldest go."""
        self.saved = step = trainer.global_step
        final = self.directory / f"step-{step:08d}"
        aside = final.with_name(f".{final.name}")
        aside.mkdir(parents=True)
        try:
            trainer.save_checkpoint(aside / FILE)
            data = (aside / FILE).read_bytes()
            file = {"path": FILE, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            (aside / checkpoint.MANIFEST).write_text(json.dumps({"step": step, "files": [file]}))
            for path in (aside / FILE, aside / checkpoint.MANIFEST, aside):
                sync(path)
            aside.rename(final)
        except OSError:  # a full disk is not filled further
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync(self.directory)
        checkpoint.prune(self.directory, self.keep)


def sync(path: Path) -> None:
    """Brings a file, or the names in a directory, through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
