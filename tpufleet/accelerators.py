"""The table of accelerator types: how many hosts and chips a type has, and what runs on it by default.

Sources: Cloud TPU's documentation of each generation and its tables of accelerator types; the number in a name
counts cores for v2, v3, v4 and v5p and chips for v5e and v6e. Where sources differ on how many chips a host of
a large v5e or v6e slice has, four are assumed here; the node's `networkEndpoints` and the host's own device
files win over this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpufleet.errors import UsageError
from tpufleet.names import shown


@dataclass(frozen=True)
class Generation:
    """What all types of one TPU generation share; `cores_per_chip` counts cores as the type's name does."""

    name: str
    prefix: str
    cores_per_chip: int
    runtime: str
    device_prefix: str
    hbm_gb: int
    single_host: tuple[int, ...]  # chip counts that fit on one host
    on_demand_usd: float  # per chip and hour
    spot_usd: float | None


@dataclass(frozen=True)
class Accelerator:
    """One type, such as `v3-32`: `hosts` VMs with `chips_per_host` chips each."""

    name: str
    generation: Generation
    hosts: int
    chips_per_host: int
    topology: str

    @property
    def chips(self) -> int:
        return self.hosts * self.chips_per_host

    @property
    def runtime(self) -> str:
        """The default runtime version (the VM's image)."""
        return self.generation.runtime

    @property
    def zones(self) -> tuple[str, ...]:
        """Where Google offers the type, by a cached copy of its list: data, not truth."""
        name = self.generation.name
        return SLICE_ZONES[name] if self.hosts > 1 and name in SLICE_ZONES else ZONES[name]

    def usd_per_hour(self, *, spot: bool) -> float | None:
        """The price of one node by the table below; None where it has none."""
        price = self.generation.spot_usd if spot else self.generation.on_demand_usd
        return None if price is None else price * self.chips

    @property
    def device_prefix(self) -> str:
        """`/dev/accel` or `/dev/vfio/`; a chip's index follows."""
        return self.generation.device_prefix


# Prices are for orientation (public price lists and peers' catalogues); the bill is Google's. Spot prices move;
# where no source was at hand there is none.
GENERATIONS = (
    Generation("v2", "v2-", 2, "tpu-ubuntu2204-base", "/dev/accel", 16, (4,), 1.125, None),
    Generation("v3", "v3-", 2, "tpu-ubuntu2204-base", "/dev/accel", 32, (4,), 2.00, 0.60),
    Generation("v4", "v4-", 2, "tpu-ubuntu2204-base", "/dev/accel", 32, (4,), 3.22, None),
    Generation("v5e", "v5litepod-", 1, "v2-alpha-tpuv5-lite", "/dev/vfio/", 16, (1, 4, 8), 1.20, 0.60),
    Generation("v5p", "v5p-", 2, "v2-alpha-tpuv5", "/dev/vfio/", 95, (4,), 4.20, 1.68),
    Generation("v6e", "v6e-", 1, "v2-alpha-tpuv6e", "/dev/vfio/", 32, (1, 4, 8), 2.70, 1.22),
)

# Source: Cloud TPU's page of regions and zones. Slices of v2 and v3 are offered elsewhere than single hosts.
ZONES = {
    "v2": ("us-central1-b", "us-central1-c", "europe-west4-a"),
    "v3": ("us-central1-a", "us-central1-b", "europe-west4-a"),
    "v4": ("us-central2-b",),
    "v5e": ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"),
    "v5p": ("us-central1-a", "us-east5-a"),
    "v6e": ("us-central1-b", "us-east1-d", "us-east5-a", "us-east5-b", "europe-west4-a"),
}
SLICE_ZONES = {"v2": ("us-central1-a",), "v3": ("europe-west4-a", "us-east1-d")}

# Slice shapes by number of chips; v4 and v5p slices are three-dimensional.
FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
CUBIC = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8"}

COMMON_TYPES = (
    *("v2-8", "v3-8", "v3-32", "v4-8", "v4-32"),
    *("v5litepod-1", "v5litepod-4", "v5litepod-8", "v5p-8", "v6e-1", "v6e-4", "v6e-8"),
)


def lookup(name: str) -> Accelerator:
    """The type called `name`; raises UsageError, naming the types there are, when there is none."""
    for generation in GENERATIONS:
        match = re.fullmatch(re.escape(generation.prefix) + r"([1-9][0-9]{0,4})", name)
        if match:
            return _sized(generation, name, int(match.group(1)))
    raise UsageError(f"there is no accelerator type {shown(name)}", hint=f"use one of {', '.join(COMMON_TYPES)}")


def _sized(generation: Generation, name: str, number: int) -> Accelerator:
    shapes = CUBIC if generation.name in ("v4", "v5p") else FLAT
    sizes = [chips for chips in shapes if chips >= min(generation.single_host)]
    chips, odd = divmod(number, generation.cores_per_chip)
    if odd or chips not in sizes:
        names = ", ".join(f"{generation.prefix}{n * generation.cores_per_chip}" for n in sizes)
        raise UsageError(f"there is no accelerator type {shown(name)}", hint=f"use one of {names}")
    per_host = chips if chips in generation.single_host else 4
    return Accelerator(name, generation, chips // per_host, per_host, shapes[chips])
