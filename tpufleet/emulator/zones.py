"""What each zone offers: accelerator types and runtime versions."""

from __future__ import annotations

from tpufleet.accelerators import COMMON_TYPES, SLICE_ZONES, ZONES, Accelerator, lookup
from tpufleet.emulator.wire import ApiError, bad_request
from tpufleet.errors import UsageError

ALL_ZONES = tuple(sorted(set(sum((*ZONES.values(), *SLICE_ZONES.values()), start=()))))

TYPES = (*COMMON_TYPES, "v2-32", "v5litepod-16", "v6e-16")
RUNTIMES = (
    *("tpu-ubuntu2204-base", "tpu-vm-base", "tpu-vm-v4-base", "v2-alpha-tpuv4"),
    *("v2-alpha-tpuv5", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv6e"),
)

# The v1 API's software versions, for TPU nodes without VMs: a few of Google's long list.
TENSORFLOW_VERSIONS = ("2.17.0", "2.18.0", "2.19.0", "nightly", "pytorch-2.0", "pytorch-nightly")

# AcceleratorConfig.Type by generation: name and number in google.cloud.tpu.v2.
CONFIG_TYPES = {
    "v2": ("V2", 2),
    "v3": ("V3", 4),
    "v4": ("V4", 7),
    "v5e": ("V5LITE_POD", 9),
    "v5p": ("V5P", 10),
    "v6e": ("V6E", 11),
}


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def check_zone(zone: str) -> None:
    if zone not in ALL_ZONES:
        raise ApiError("PERMISSION_DENIED", f"Location {zone} is not found or access is unauthorized.")


def accelerator_in(zone: str, name: str) -> Accelerator:
    """The accelerator type `name` if `zone` has it; raises ApiError (INVALID_ARGUMENT) in Google's wording."""
    try:
        accelerator = lookup(name)
    except UsageError as error:
        raise _not_in_zone(name, zone) from error
    if zone not in accelerator.zones:
        raise _not_in_zone(name, zone)
    return accelerator


def name_of_config(kind: str | int, topology: str) -> str:
    """The accelerator type of an AcceleratorConfig: ("V4", "2x2x1") is v4-8. Raises ApiError when there is none."""
    for name in TYPES:
        accelerator = lookup(name)
        if accelerator.topology == topology and kind in CONFIG_TYPES[accelerator.generation.name]:
            return name
    raise bad_request(f"there is no accelerator of type {kind} with topology {topology}")


def types_in(zone: str) -> list[str]:
    return [name for name in TYPES if zone in lookup(name).zones]


def _not_in_zone(name: str, zone: str) -> ApiError:
    return bad_request(f"the accelerator {name} was not found in zone {zone}")
