"""HBM and duty cycle per chip, where the library of Google's `tpu-info` is installed. Not seen on real hardware yet.

libtpu tells them on the metrics port of each run's process (`pin.METRIC_PORT` and the slot's first chip). The library
lives in the job's environment, not in the agent's, and takes its time to import: so the text of this file is run as a
program of its own now and then, by the job's Python, and what it found is a file that a probe only has to read.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

    from tpufleet.host.places import Places
    from tpufleet.host.records import RunState

EVERY_S = 30.0
TIME_LIMIT_S = 15
FRESH_S = 120.0
NOT_INSTALLED_CODE = 3

Usages = dict[str, dict[str, Any]]


class Sampler:
    """The queue's worker has one: it starts the program, never waits for it, and gives up where there is no library."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = ""
        self._next_s = 0.0
        self._missing: set[str] = set()

    def look(self, running: Sequence[RunState]) -> None:
        import subprocess  # late: a probe, which reads what was found, doesn't pay for it

        slots = [",".join(map(str, state.chip_indices)) for state in running if state.chip_indices]
        if not self._is_free() or not slots or time.monotonic() < self._next_s:
            return
        python = self._python(running)
        self._next_s = time.monotonic() + EVERY_S
        if python in self._missing:
            return
        self._asked = python
        self._process = subprocess.Popen(
            [python, "-c", Path(__file__).read_text(), str(self._places.usage), *slots],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",  # started from our directory, a program would take our modules for the standard library's
        )

    def _is_free(self) -> bool:
        """Whether the last one has ended; remembers a Python without the library."""
        process = self._process
        if process is None:
            return True
        code = process.poll()
        if code == NOT_INSTALLED_CODE:
            self._missing.add(self._asked)
        return code is not None

    def _python(self, running: Sequence[RunState]) -> str:
        """The Python of a running run's tree, else the host's."""
        from tpufleet.host.store import RunStore  # late: this file is also a program without our package

        for state in running:
            spec = RunStore(self._places.run(state.id)).spec()
            if spec.repo is not None and spec.commit is not None:
                python = self._places.repo(spec.repo).tree(spec.commit) / ".venv/bin/python"
                if python.exists():
                    return str(python)
        return "python3"


def latest(places: Places) -> Usages:
    """By chip: `hbm_used` and `hbm_total` in bytes, `duty_pct`; nothing where it isn't known or is old."""
    from tpufleet.host.files import read_json  # late: this file is also a program without our package

    try:
        if time.time() - places.usage.stat().st_mtime > FRESH_S:
            return {}
    except OSError:
        return {}
    return read_json(places.usage) or {}


def sample(slots: Sequence[Sequence[int]], first_port: int = 8431) -> Usages:
    """What the library says of the processes on these slots; those that don't answer are left out."""
    device: Any = importlib.import_module("tpu_info.device")
    metrics: Any = importlib.import_module("tpu_info.metrics")
    kind, _count = device.get_local_chips()
    found: Usages = {}
    for slot in slots:
        try:
            cores: list[Any] = metrics.get_chip_usage(kind, f"localhost:{first_port + slot[0]}")
        except Exception:  # noqa: BLE001, S112 - grpc's errors, whose class can't be named here; a job has no server
            continue
        each = max(1, len(cores) // len(slot))  # a v2's or v3's chip is two devices
        for place, chip in enumerate(slot):
            mine = cores[place * each : (place + 1) * each]
            if mine:
                found[str(chip)] = {
                    "hbm_used": sum(int(core.memory_usage) for core in mine),
                    "hbm_total": sum(int(core.total_memory) for core in mine),
                    "duty_pct": round(sum(float(core.duty_cycle_pct) for core in mine) / len(mine), 1),
                }
    return found


def main(target: str, slots: Sequence[str]) -> int:
    signal.alarm(TIME_LIMIT_S)
    try:
        found = sample([[int(chip) for chip in slot.split(",")] for slot in slots])
    except ImportError:
        return NOT_INSTALLED_CODE
    aside = Path(f"{target}.{os.getpid()}")
    aside.write_text(json.dumps(found))
    aside.replace(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
