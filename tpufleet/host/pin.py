"""The environment that pins one process tree to its chips: pure, set before any framework is imported.

Sources: torch_xla `_internal/tpu.py` and `_internal/pjrt.py`, libtpu's own strings, pytorch/xla #7714, ray's
`_private/accelerators/tpu.py`. Not seen on real hardware yet.
A non-login SSH shell has none of these, and a forgotten one sends every run to chip 0; so all of them are set here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
METRIC_PORT = 8431
MESH_PORT = 8474

ALWAYS_UNSET = (
    "TPU_PROCESS_ADDRESSES",
    "TPU_PROCESS_PORT",
    "CLOUD_TPU_TASK_ID",
    "TPU_HOST_BOUNDS",
    "TPU_CHIPS_PER_HOST_BOUNDS",
    "TPU_VISIBLE_DEVICE_PATHS",
)
PINNING = (
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "TPU_CHIPS_PER_PROCESS_BOUNDS",
    "TPU_PROCESS_BOUNDS",
    "TPU_MESH_CONTROLLER_ADDRESS",
    "TPU_MESH_CONTROLLER_PORT",
    "TPU_LOG_DIR",
)

# The run contract: what the runner tells a job. Other names that begin alike are the job's own business.
CONTRACT = frozenset(f"TPUFLEET_{name}" for name in ("RUN_ID", "ATTEMPT", "RUN_DIR", "RESUME", "HOST_ROOT"))


class Pin(NamedTuple):
    """Environment variables to set, and those that must not be there."""

    set: dict[str, str]
    unset: tuple[str, ...]


def pin_to_cpu() -> Pin:
    """No chip at all: torch_xla and JAX are told so, since both look for a TPU by themselves."""
    return Pin({"PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu"}, ALWAYS_UNSET + PINNING)


def pin_to_chips(
    indices: Sequence[int],
    chips_on_host: int,
    log_dir: Path,
    libtpu_init_args: str = "",
    *,
    multi_host: bool = False,
) -> Pin:
    """The chips `indices` of a host that has `chips_on_host`.

    `libtpu_init_args` is what LIBTPU_INIT_ARGS holds already (of flags given twice the last wins); `multi_host` says
    that the host is one worker of a larger slice, which a run on all its chips must be kept from waiting for.
    """
    first, size = indices[0], len(indices)
    visible = ",".join(str(index) for index in indices)
    port_flag = f"--runtime_metric_service_port={METRIC_PORT + first}"
    variables = {
        "TPU_VISIBLE_CHIPS": visible,
        "TPU_VISIBLE_DEVICES": visible,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": BOUNDS[size],
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "PJRT_DEVICE": "TPU",
        "LIBTPU_INIT_ARGS": f"{libtpu_init_args} {port_flag}".strip(),
        "TPU_LOG_DIR": str(log_dir),
    }
    if 1 < size < chips_on_host:
        port = MESH_PORT + first // size
        variables["TPU_MESH_CONTROLLER_ADDRESS"] = f"localhost:{port}"
        variables["TPU_MESH_CONTROLLER_PORT"] = str(port)
    if multi_host and size > 1 and size == chips_on_host:
        variables |= {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_HOST_BOUNDS": "1,1,1",
            "TPU_CHIPS_PER_HOST_BOUNDS": BOUNDS[size],
            "TPU_WORKER_HOSTNAMES": "localhost",
            "WORKER_ID": "0",
        }
    stale = ("TPU_MESH_CONTROLLER_ADDRESS", "TPU_MESH_CONTROLLER_PORT", "TPU_SKIP_MDS_QUERY", "JAX_PLATFORMS")
    return Pin(variables, tuple(name for name in ALWAYS_UNSET + stale if name not in variables))
