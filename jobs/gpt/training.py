"""A training under way: the batches, one step, and what a checkpoint must hold to go on from it exactly."""

import math
import random
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from device import Device, DeviceError
from model import GPT, Shape
from options import Options


class Windows:
    """Windows of a text on the device: what the model sees, and what follows each byte of it."""

    def __init__(self, data: bytes, context: int, device: Device) -> None:
        self.device = device.torch
        self.count = len(data) - context
        self.here = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self.there = self.here.to(device.torch)  # on a CPU the same
        self.places = torch.arange(context + 1)
        self.places_there = self.places.to(device.torch)

    def at(self, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where `starts` (B,) on the device say: (B, context) bytes and the same one byte on, gathered there."""
        both = self.there[starts[:, None] + self.places_there].long()
        return both[:, :-1], both[:, 1:]

    def evenly(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`count` windows spread over the text, the same in every evaluation of every run, brought to the device."""
        starts = torch.arange(count) * (self.count - 1) // max(count - 1, 1)
        both = self.here[starts[:, None] + self.places].long()
        return both[:, :-1].to(self.device), both[:, 1:].to(self.device)


class Training:
    """The model, its optimizer, the random numbers and the position. Raises DeviceError for what the device can't."""

    def __init__(self, options: Options, windows: Windows, device: Device) -> None:
        torch.manual_seed(options.seed)
        random.seed(options.seed)
        device.set_random_state(options.seed)
        self.options, self.windows, self.device = options, windows, device
        self.model = GPT(shape_of(options)).on(device.torch)
        if options.scan:
            self.model.run_blocks = device.scan()
        self.launch = options.steps_per_launch
        self.loss = self._loss
        if options.compile and options.scan:
            raise DeviceError("--compile does not go with --scan: torch.compile can't look into torch_xla's scan")
        if options.compile:  # what was compiled runs when it is called: a step is a launch
            self.launch, self.loss = 1, torch.compile(self._loss, backend=device.compiler(), dynamic=False)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr, **device.adam)
        device.warm(self.optimizer)
        self.batches = torch.Generator().manual_seed(options.seed)
        self.step = 0
        self.loss_sum = device.number(0.0)  # over the steps since the last evaluation
        self.loss_count = 0
        self.one = device.number(1.0)  # the loss's own gradient: autograd's own would be a program of its own

    def advance(self) -> None:
        """The steps of one launch: so many that the device is left to itself until then. One, mostly."""
        steps = self.launch - self.step % self.launch
        starts = torch.randint(self.windows.count, (steps, self.options.batch), generator=self.batches)
        starts = starts.to(self.device.torch)  # all that moves to the device
        for row in range(steps):
            self._step(starts, row)
        self.device.sync("the training step", starts)

    def _loss(self, starts: torch.Tensor, row: int) -> torch.Tensor:
        """The loss of the batch that begins where a row of `starts` (steps, B) says."""
        return self.model.loss(*self.windows.at(starts[row]))

    def _step(self, starts: torch.Tensor, row: int) -> None:
        """A batch, its loss, a small move of all weights against it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.options, self.step)
        with self.device.autocast(self.options.amp):
            loss = self.loss(starts, row)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward(self.one)
        self.optimizer.step()
        self.loss_sum += loss.detach()  # stays on the device: to look at it would be to wait for it
        self.loss_count += 1
        self.step += 1

    @torch.no_grad()
    def test_loss(self, window: torch.Tensor, following: torch.Tensor) -> float:
        """The loss without dropout, on windows (B, T) that are never trained on (waits for the device)."""
        self.model.eval()
        with self.device.autocast(self.options.amp):
            loss = self.model.loss(window, following)
        self.device.sync("the evaluation", window)
        self.model.train()
        return float(loss)

    def take_train_loss(self) -> float | None:
        """The mean loss of the steps since this was last asked (waits for the device); None without any."""
        mean = float(self.loss_sum) / self.loss_count if self.loss_count else None
        self.loss_sum = self.device.number(0.0)
        self.loss_count = 0
        return mean

    def state(self) -> dict[str, dict[str, Any]]:
        """The parts of a checkpoint: `model`, which is all that a completion needs, and `training`."""
        return {
            "model": {"shape": asdict(self.model.shape), "weights": self.model.state_dict()},
            "training": {
                "step": self.step,
                "loss": (float(self.loss_sum), self.loss_count),
                "optimizer": self.optimizer.state_dict(),
                "random": {
                    "torch": torch.get_rng_state(),
                    "python": random.getstate(),
                    "batches": self.batches.get_state(),
                    "device": self.device.random_state(),
                },
            },
        }

    def restore(self, model: Mapping[str, Any], training: Mapping[str, Any]) -> None:
        """Goes back to where `state` was asked. The learning rate follows from the options, which may be others now."""
        self.model.load_state_dict(model["weights"])
        for group in training["optimizer"]["param_groups"]:
            group.update({"fused": None, "capturable": False} | self.device.adam)  # it may come from another device
        self.optimizer.load_state_dict(training["optimizer"])
        self.step = training["step"]
        loss_sum, self.loss_count = training["loss"]
        self.loss_sum = self.device.number(loss_sum)
        states = training["random"]
        torch.set_rng_state(states["torch"])
        random.setstate(states["python"])
        self.batches.set_state(states["batches"])
        self.device.set_random_state(states["device"])


def shape_of(options: Options) -> Shape:
    """The shape of the model that `options` describe."""
    return Shape(**{name: getattr(options, name) for name in Shape.__dataclass_fields__})


def rate(options: Options, step: int) -> float:
    """The learning rate of a step (from 0): rising over `warmup` steps, then constant, or a cosine down to a tenth."""
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    if options.schedule == "constant":
        return options.lr
    share = min((step - options.warmup) / max(options.steps - options.warmup, 1), 1.0)
    return options.lr * (0.1 + 0.9 * (1 + math.cos(math.pi * share)) / 2)
