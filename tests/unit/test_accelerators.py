"""The table of accelerator types, against the documented shapes."""

from __future__ import annotations

import pytest

from tpufleet.accelerators import COMMON_TYPES, CUBIC, FLAT, GENERATIONS, Generation, lookup
from tpufleet.errors import UsageError


@pytest.mark.parametrize(
    ("name", "hosts", "per_host", "topology"),
    [
        ("v2-8", 1, 4, "2x2"),
        ("v2-32", 4, 4, "4x4"),
        ("v3-8", 1, 4, "2x2"),
        ("v3-32", 4, 4, "4x4"),
        ("v4-8", 1, 4, "2x2x1"),
        ("v4-32", 4, 4, "2x2x4"),
        ("v5litepod-1", 1, 1, "1x1"),
        ("v5litepod-4", 1, 4, "2x2"),
        ("v5litepod-8", 1, 8, "2x4"),
        ("v5litepod-16", 4, 4, "4x4"),
        ("v5p-8", 1, 4, "2x2x1"),
        ("v6e-1", 1, 1, "1x1"),
        ("v6e-4", 1, 4, "2x2"),
        ("v6e-8", 1, 8, "2x4"),
        ("v6e-16", 4, 4, "4x4"),
    ],
)
def test_a_type_has_its_documented_hosts_chips_and_topology(
    name: str, hosts: int, per_host: int, topology: str
) -> None:
    kind = lookup(name)
    assert (kind.hosts, kind.chips_per_host, kind.chips, kind.topology) == (hosts, per_host, hosts * per_host, topology)


@pytest.mark.parametrize(
    ("name", "runtime", "device_prefix"),
    [
        ("v2-8", "tpu-ubuntu2204-base", "/dev/accel"),
        ("v4-8", "tpu-ubuntu2204-base", "/dev/accel"),
        ("v5litepod-4", "v2-alpha-tpuv5-lite", "/dev/vfio/"),
        ("v5p-8", "v2-alpha-tpuv5", "/dev/vfio/"),
        ("v6e-4", "v2-alpha-tpuv6e", "/dev/vfio/"),
    ],
)
def test_a_generation_has_its_runtime_and_device_files(name: str, runtime: str, device_prefix: str) -> None:
    assert (lookup(name).runtime, lookup(name).device_prefix) == (runtime, device_prefix)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "v2",
        "v2-",
        "v2-0",
        "v2-7",
        "v2-4",
        "v2-08",
        "v2-8 ",
        "v2-8\n",
        "V2-8",
        "v9-8",
        "v3-3٢",
        "v9" * 5000,
        "v5e-8",
        "tpu7x-8",
        "v6e-2",
    ],
)
def test_a_type_that_does_not_exist_is_refused_with_those_that_do(name: str) -> None:
    with pytest.raises(UsageError, match="there is no accelerator type") as caught:
        lookup(name)
    assert str(caught.value.hint).startswith("use one of v")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_the_types_that_a_hint_names_exist() -> None:
    assert [lookup(name).name for name in COMMON_TYPES] == list(COMMON_TYPES)


@pytest.mark.parametrize("shapes", [FLAT, CUBIC])
def test_a_topology_multiplies_to_its_chips(shapes: dict[int, str]) -> None:
    for chips, shape in shapes.items():
        product = 1
        for side in shape.split("x"):
            product *= int(side)
        assert product == chips


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda generation: generation.name)
def test_spot_costs_less_than_on_demand(generation: Generation) -> None:
    assert generation.spot_usd is None or generation.spot_usd < generation.on_demand_usd
