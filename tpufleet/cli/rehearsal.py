"""The way to the rehearsal cloud: the one place, with its own commands, where the product starts the emulator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tpufleet.errors import CloudUnreachable, UsageError
from tpufleet.model import Spec
from tpufleet.paths import ELSEWHERE, LocalPaths

if TYPE_CHECKING:
    from tpufleet.cloud.port import Cloud
    from tpufleet.emulator.launch import Running


def ensure_running(spec: Spec, paths: LocalPaths) -> Running:
    """The fleet's rehearsal cloud, started if it isn't running."""
    from tpufleet.emulator.launch import start

    paths.ensure_state()
    directories = [_existing(paths.directory / Path(entry).expanduser()) for entry in spec.cloud.emulator.path]
    if os.environ.get(ELSEWHERE):  # somebody else's, who has set it up
        return start(paths.emulator, path=directories)
    wanted = spec.cloud.emulator
    return start(paths.emulator, path=directories, create_seconds=wanted.create_seconds, hosts=wanted.hosts)


def connect(spec: Spec, paths: LocalPaths, *, start: bool) -> Cloud:
    """The rehearsal cloud as a cloud; raises CloudUnreachable when it does not run and isn't to be started."""
    from tpufleet.emulator.launch import running

    at = ensure_running(spec, paths) if start else running(paths.emulator)
    if at is None:
        raise CloudUnreachable(
            "the rehearsal cloud is not running", hint="tpufleet create, or: tpufleet emulator start"
        )
    from tpufleet.cloud import tpu_api

    return tpu_api.rehearsal(project(spec), at.url, at.ssh_port)


def project(spec: Spec) -> str:
    """The project that the fleet's nodes are in on the rehearsal cloud."""
    return spec.cloud.project or "rehearsal"


def _existing(directory: Path) -> Path:
    if not directory.is_dir():
        raise UsageError(
            f"cloud.emulator.path names {directory}, which is not a directory",
            hint="make demo makes .venv-jobs, make exercise .venv-frameworks",
        )
    return directory
