"""All that differs between a CPU and a TPU (through torch_xla and PJRT). torch_xla is imported only when used.

XLA is lazy: operations are only noted down, and `sync` compiles what was noted and runs it. The same notes
give the same program, which is compiled once; a new shape, or a Python number that changes, gives a new one.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch


class DeviceError(Exception):
    """The device asked for is not the one that is there; the message is one sentence for a person."""


@dataclass(frozen=True)
class Device:
    """A device that is really there: `name` is cpu, xla:TPU or xla:CPU, `why` says how it was chosen."""

    torch: torch.device
    name: str
    why: str

    @property
    def is_xla(self) -> bool:
        return self.torch.type == "xla"

    def sync(self) -> None:
        """Runs what was noted down so far (on a CPU it has run already)."""
        if self.is_xla:
            import torch_xla

            torch_xla.sync()

    def random_state(self) -> object:
        """The state of the device's own random numbers, which dropout draws from (a CPU's is torch's)."""
        if not self.is_xla:
            return None
        import torch_xla.core.xla_model as xm

        return xm.get_rng_state()

    def set_random_state(self, state: object) -> None:
        """Puts back what `random_state` gave; a seed will do on XLA, whose state is a number."""
        if self.is_xla and state is not None:
            import torch_xla.core.xla_model as xm

            xm.set_rng_state(state)


def choose(wanted: str) -> Device:
    """The device for `wanted`, one of cpu, xla, auto. Raises DeviceError when it is not really there."""
    if wanted == "auto":
        wanted, why = automatic(os.environ, Path("/dev"))
    else:
        why = "as asked"
    return _xla(why) if wanted == "xla" else Device(torch.device("cpu"), "cpu", why)


def automatic(environ: Mapping[str, str], dev: Path) -> tuple[str, str]:
    """What `auto` means with this environment and these device files, and why: ("cpu", "no TPU chip here")."""
    if environ.get("PJRT_DEVICE") != "TPU":
        return "cpu", "PJRT_DEVICE is not TPU"
    # v2 to v4 have /dev/accelN, v5e and later /dev/vfio/N (/dev/vfio/vfio is there without a TPU, too)
    if not [*dev.glob("accel[0-9]*"), *dev.glob("vfio/[0-9]*")]:
        return "cpu", "no TPU chip here"
    if find_spec("torch_xla") is None:
        return "cpu", "torch_xla is not installed"
    return "xla", "a TPU chip and torch_xla are here"


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
        reason = (str(error).splitlines() or ["it does not say why"])[0]
        raise DeviceError(f"torch_xla can't use a {asked} here: {reason}") from None
    if hardware != asked:
        raise DeviceError(f"PJRT_DEVICE is {asked}, but torch_xla took a {hardware}")
    return Device(device, f"xla:{hardware}", why)
