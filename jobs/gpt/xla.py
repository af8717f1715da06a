"""A device of torch_xla's: what differs where operations are only noted down until they are compiled and run.

`sync` compiles what was noted and runs it. The same notes give the same program, which is compiled once; a new shape
gives a new program, and so does looking at a number before `sync`. A program takes seconds to compile and
milliseconds to run, so torch_xla's own counts of both go into the records, and a late compilation is told.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch_xla.debug import metrics

from device import Device

FETCH = "aten::_local_scalar_dense"  # a number that was looked at: torch_xla counts it as if XLA had no such operation


class Xla(Device):
    """A TPU, or a CPU that stands in for one."""

    is_lazy = True

    def __init__(self, device: torch.device, name: str, why: str) -> None:
        super().__init__(device, name, why)
        self._expected: int | None = None  # so many compilations are no surprise; None as long as none is
        self._shapes: dict[str, set[object]] = {}  # of the inputs that each thing was compiled for
        self._surprises: list[str] = []

    @property
    def adam(self) -> dict[str, bool]:
        """Steps are counted on the device: a count on the CPU would send numbers along with each."""
        return {"capturable": True}

    def number(self, value: float) -> torch.Tensor:
        """Sent as it is: `to` makes a 0 or a 1 part of the program that uses it first, and the next is another."""
        return xm.send_cpu_data_to_device([torch.tensor(value)], self.torch)[0]

    def warm(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives Adam its moments, as zeros: made in its first step, they would make that a program of its own."""
        for group in optimizer.param_groups:
            for weights in group["params"]:
                moments = {name: torch.zeros(weights.shape).to(self.torch) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[weights] = {"step": self.number(0.0), **moments}

    def sync(self, what: str = "", *inputs: torch.Tensor) -> None:
        before = compilations()
        torch_xla.sync()
        if compilations() > before:
            self._note(what, tuple(tuple(tensor.shape) for tensor in inputs))

    def _note(self, what: str, shapes: object) -> None:
        known = self._shapes.setdefault(what, set())
        if self._expected is not None:
            self._expected += 1
            again = "again, for the shapes it had before" if shapes in known else f"again, for new shapes, {shapes}"
            self._surprises.append(f"{what} was compiled {again if known else 'now, for the first time'}")
        known.add(shapes)

    def compiler(self) -> str:
        return "openxla"

    def scan(self) -> Callable[..., torch.Tensor]:
        from torch_xla.experimental.scan_layers import scan_layers

        def scan(blocks: Iterable[nn.Module], x: torch.Tensor) -> torch.Tensor:
            with PlainDropout():
                return scan_layers(blocks, x)

        return scan

    def loop(self) -> Callable[..., Any]:
        # `scan` itself wants gradients, and so no integers; `while_loop` fails on every number that a model holds
        from torch_xla.experimental.scan import _scan_impl_pytree

        return _scan_impl_pytree

    def random_state(self) -> object:
        return xm.get_rng_state()

    def set_random_state(self, state: object) -> None:
        if state is not None:
            xm.set_rng_state(state)

    def counts(self) -> dict[str, int | float | str]:
        """torch_xla's figures since the process began; `fallbacks` names, if any, the operations that XLA has not."""
        data = metrics.metric_data("CompileTime")
        counts: dict[str, int | float | str] = {
            "compilations": compilations(),
            "compile_seconds": round(data[1] / 1e9, 3) if data else 0.0,
            "transfers_to_device": _count("TransferToDeviceTime"),
            "transfers_from_device": _count("TransferFromDeviceTime"),
        }
        fallbacks = [name for name in metrics.counter_names() if name.startswith("aten::") and name != FETCH]
        return counts | ({"fallbacks": ", ".join(fallbacks)} if fallbacks else {})

    def settle(self) -> None:
        if self._expected is None:
            self._expected = compilations()

    def surprises(self) -> list[str]:
        if self._expected is not None and (more := compilations() - self._expected) > 0:
            self._expected += more
            self._surprises.append(f"{more} compiled outside of a step: a result was looked at before its sync")
        told, self._surprises = self._surprises, []
        return told

    @contextlib.contextmanager
    def profile(self, directory: Path) -> Iterator[None]:
        """The trace is XLA's own, an xplane: TensorBoard's profile plugin and xprof show it."""
        from torch_xla.debug import profiler

        directory.mkdir(parents=True, exist_ok=True)
        profiler.start_trace(str(directory))
        try:
            yield
            xm.wait_device_ops()  # the step was only sent off
        finally:
            profiler.stop_trace()


class PlainDropout(TorchFunctionMode):
    """Inside, dropout is a product with a mask: the mask of torch's own has a type that torch_xla's scan trips over."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is not functional.dropout:
            return func(*args, **given)
        x, p = args[0], given["p"]
        return x * (torch.rand_like(x) >= p) / (1 - p) if given["training"] and p else x


def compilations() -> int:
    """How many programs were compiled since the process began."""
    return _count("CompileTime")


def _count(timing: str) -> int:
    data = metrics.metric_data(timing)
    return data[0] if data else 0
