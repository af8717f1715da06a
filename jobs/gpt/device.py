"""All that differs between devices: a CPU, a GPU, a TPU through torch_xla (xla.py) or through torch_tpu.

What is here holds where each operation runs as it comes: CPU, GPU, torch_tpu. The last is written by its
documentation; no chip that it knows was at hand to run it on.
"""

import contextlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch


class DeviceError(Exception):
    """The device, or what is asked of it, is not there; the message is one sentence for a person."""


class Device:
    """A device that is really there: `name` is cpu, cuda:NAME, tpu, xla:TPU or xla:CPU, `why` how it was chosen."""

    is_lazy = False  # whether operations wait for `sync`

    def __init__(self, device: torch.device, name: str, why: str) -> None:
        self.torch, self.name, self.why = device, name, why

    @property
    def adam(self) -> dict[str, bool]:
        """What Adam is told: one kernel for all weights, where there is one."""
        return {"fused": self.torch.type in ("cpu", "cuda")}

    def number(self, value: float) -> torch.Tensor:
        """A number that lies on the device."""
        return torch.tensor(value, device=self.torch)

    def warm(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives Adam what it would make in its first step, where that makes a difference."""

    def sync(self, what: str = "", *inputs: torch.Tensor) -> None:
        """Runs what was noted down so far, `what` on `inputs`; here it has run already."""

    def autocast(self, amp: str | None) -> contextlib.AbstractContextManager[object]:
        """Inside, matrix products are in `amp` (bf16) and the rest stays as precise as it was; None changes nothing."""
        if amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.torch.type, dtype=torch.bfloat16)

    def compiler(self) -> str:
        """The backend of torch.compile. Raises DeviceError where there is none."""
        if self.torch.type == "tpu":
            return "tpu"
        compilers = (os.environ.get("CXX"), "g++", "clang++", "c++")
        if self.torch.type == "cpu" and not any(shutil.which(name) for name in compilers if name):
            raise DeviceError("--compile on a CPU needs a C++ compiler, and there is none here: install g++")
        return "inductor"

    def scan(self) -> Callable[..., torch.Tensor]:
        """Runs equal blocks as one loop on the device. Raises DeviceError where there is no such thing."""
        raise DeviceError(f"--scan is torch_xla's: it needs --device xla, and this is {self.name}")

    def loop(self) -> Callable[..., Any]:
        """Runs a function over the rows of tensors as one loop on the device, as torch_xla's scan does; XLA has it."""
        raise NotImplementedError

    def random_state(self) -> object:
        """The state of the device's own random numbers, which dropout draws from (a CPU's is torch's)."""
        return None if self.torch.type == "cpu" else _module(self.torch.type).get_rng_state()

    def set_random_state(self, state: object) -> None:
        """Puts back what `random_state` gave; a seed will do."""
        if self.torch.type == "cpu" or state is None:
            return
        module = _module(self.torch.type)
        module.manual_seed(state) if isinstance(state, int) else module.set_rng_state(state)

    def counts(self) -> dict[str, int | float | str]:
        """What compiling took since the process began, by torch.compile's own account; nothing where nothing was."""
        if "torch._dynamo" not in sys.modules:
            return {}
        from torch._dynamo.utils import get_compilation_metrics

        took = [each.duration_us or 0 for each in get_compilation_metrics()]
        return {"compilations": len(took), "compile_seconds": round(sum(took) / 1e6, 3)} if took else {}

    def settle(self) -> None:
        """From here on a compilation is a surprise."""

    def surprises(self) -> list[str]:
        """A sentence for each surprise since this was last asked."""
        return []

    @contextlib.contextmanager
    def profile(self, directory: Path) -> Iterator[None]:
        """Inside, all that runs is recorded into `directory/trace.json` (chrome://tracing, ui.perfetto.dev)."""
        directory.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler tells stderr that it starts and stops
        with torch.profiler.profile() as profiler:
            yield
        profiler.export_chrome_trace(str(directory / "trace.json"))


def _module(kind: str) -> Any:
    """torch.cuda, torch.tpu, …: where torch keeps what belongs to a device."""
    return getattr(torch, kind)


def choose(wanted: str) -> Device:
    """The device for `wanted`, one of options.DEVICES. Raises DeviceError when it is not really there."""
    why = "as asked"
    if wanted == "auto":
        wanted, why = automatic(os.environ, Path("/dev"), cuda=torch.cuda.is_available())
    makers = {"cpu": _cpu, "cuda": _cuda, "xla": _xla, "tpu": _tpu}
    return makers[wanted](why)


def chosen(device: torch.device, why: str) -> Device:
    """The Device of a torch device that somebody else has chosen (Lightning does, in ../lightning)."""
    if device.type != "xla":
        return Device(device, str(device), why)
    from xla import Xla

    return Xla(device, str(device), why)


def automatic(environ: Mapping[str, str], dev: Path, *, cuda: bool = False) -> tuple[str, str]:
    """What `auto` means with this environment and these device files, and why: ("cpu", "no TPU chip here").

    A TPU only with PJRT_DEVICE=TPU, as tpufleet sets it with the pin: without a pin it would be chip 0, everybody's.
    """
    asked = environ.get("PJRT_DEVICE")
    # v2 to v4 have /dev/accelN, v5e and later /dev/vfio/N (/dev/vfio/vfio is there without a TPU, too)
    vfio = any(dev.glob("vfio/[0-9]*"))
    chip = vfio or any(dev.glob("accel[0-9]*"))
    if asked == "TPU" and chip and find_spec("torch_xla"):
        return "xla", "a TPU chip and torch_xla are here"
    if asked == "TPU" and vfio and find_spec("torch_tpu"):
        return "tpu", "a TPU chip and torch_tpu are here"
    if asked != "CPU" and cuda:
        return "cuda", "a GPU is here"
    if asked != "TPU":
        return "cpu", "PJRT_DEVICE is not TPU"
    return "cpu", "torch_xla is not installed" if chip else "no TPU chip here"


def _cpu(why: str) -> Device:
    return Device(torch.device("cpu"), "cpu", why)


def _cuda(why: str) -> Device:
    if not torch.cuda.is_available():
        reason = "no GPU that it can use is here" if torch.version.cuda else "it is a build without CUDA"
        raise DeviceError(f"torch {torch.__version__} can't use a GPU: {reason}")
    return Device(torch.device("cuda"), f"cuda:{torch.cuda.get_device_name()}", why)


def _tpu(why: str) -> Device:
    """torch_tpu's device, which torch loads by itself. Where there is no chip, torch.tpu raises when it is asked."""
    if find_spec("torch_tpu") is None:
        raise DeviceError("--device tpu needs torch_tpu, which is not installed; older TPUs (v2, v3) need --device xla")
    try:
        importlib.import_module("torch_tpu")
        found = torch.accelerator.current_accelerator(check_available=True)
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(f"torch_tpu can't use a TPU here: {_first_line(error)}") from None
    if found is None or found.type != "tpu":
        raise DeviceError(f"torch_tpu finds no TPU here: torch's accelerator is {found}")
    return Device(torch.device("tpu"), "tpu", why)


def _xla(why: str) -> Device:
    """The first XLA device, if it is what PJRT_DEVICE (default TPU) says.

    torch_xla takes a CPU without a word when it finds no TPU and PJRT_DEVICE is not set, so it is always set,
    and what was got is compared with it.
    """
    asked = os.environ.setdefault("PJRT_DEVICE", "TPU")
    try:
        import torch_xla
        import torch_xla.core.xla_model as xm

        device = torch_xla.device()
        hardware = xm.xla_device_hw(device)
    except ImportError as error:
        raise DeviceError(f"--device xla needs torch_xla, made for torch {torch.__version__}: {error}") from None
    except (OSError, RuntimeError) as error:  # no libtpu, a chip that is busy, …
        raise DeviceError(f"torch_xla can't use a {asked} here: {_first_line(error)}") from None
    if hardware != asked:
        raise DeviceError(f"PJRT_DEVICE is {asked}, but torch_xla took a {hardware}")
    from xla import Xla

    return Xla(device, f"xla:{hardware}", why)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["it does not say why"])[0]
