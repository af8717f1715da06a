"""A training under way: the batches, one step, and what a checkpoint must hold to go on from it exactly."""

import random
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from device import Device
from model import GPT, Shape
from options import Options


class Windows:
    """Windows of a text on the device: what the model sees, and what follows each byte of it."""

    def __init__(self, data: bytes, context: int, device: Device) -> None:
        self.device = device
        self.count = len(data) - context
        self.data = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device.torch)
        self.places = torch.arange(context + 1, device=device.torch)

    def at(self, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where `starts` (B,) say: (B, context) bytes and the same one byte on, gathered on the device."""
        both = self.data[starts.to(self.device.torch)[:, None] + self.places].long()
        return both[:, :-1], both[:, 1:]

    def evenly(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`count` windows spread over the text: the same in every evaluation of every run."""
        return self.at(torch.arange(count) * (self.count - 1) // max(count - 1, 1))


class Training:
    """The model, its optimizer, the random numbers and the position."""

    def __init__(self, options: Options, windows: Windows, device: Device) -> None:
        torch.manual_seed(options.seed)
        random.seed(options.seed)
        device.set_random_state(options.seed)
        self.options, self.windows, self.device = options, windows, device
        self.model = GPT(shape_of(options)).to(device.torch)
        # one fused kernel for all weights on a CPU; XLA fuses by itself
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr, fused=not device.is_xla)
        self.batches = torch.Generator().manual_seed(options.seed)
        self.step = 0
        self.loss_sum = torch.zeros((), device=device.torch)  # over the steps since the last evaluation
        self.loss_count = 0

    def advance(self) -> None:
        """One step: a random batch, its loss, a small move of all weights against it."""
        starts = torch.randint(self.windows.count, (self.options.batch,), generator=self.batches)
        loss = self.model.loss(*self.windows.at(starts))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.loss_sum += loss.detach()  # stays on the device: to look at it would be to wait for it
        self.loss_count += 1
        self.step += 1
        self.device.sync()

    def take_train_loss(self) -> float | None:
        """The mean loss of the steps since this was last asked (waits for the device); None without any."""
        mean = float(self.loss_sum) / self.loss_count if self.loss_count else None
        self.loss_sum = torch.zeros((), device=self.device.torch)
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
        """Goes back to where `state` was asked. The learning rate is the options', which may be another now."""
        self.model.load_state_dict(model["weights"])
        self.optimizer.load_state_dict(training["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.lr
        self.step = training["step"]
        loss_sum, self.loss_count = training["loss"]
        self.loss_sum = torch.tensor(loss_sum, device=self.device.torch)
        states = training["random"]
        torch.set_rng_state(states["torch"])
        random.setstate(states["python"])
        self.batches.set_state(states["batches"])
        self.device.set_random_state(states["device"])


def shape_of(options: Options) -> Shape:
    """The shape of the model that `options` describe."""
    return Shape(**{name: getattr(options, name) for name in Shape.__dataclass_fields__})
