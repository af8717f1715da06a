"""The environment of a training, and of a repository's setup lines: built up from nothing, so that what an SSH session
happens to carry does not decide how a run behaves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tpufleet.host.pin import Pin
from tpufleet.host.specs import RunSpec

# What a training gets from the host. LD_PRELOAD is the TPU image's tcmalloc, which trainings are faster with.
FROM_HOST = (
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_PRELOAD",
    "TPUFLEET_HOST_ROOT", "GCE_METADATA_HOST",
)  # fmt: skip
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(host: Mapping[str, str], tree: Path | None) -> dict[str, str]:
    """The host's part, with the tree's own virtual environment first on PATH when it has one."""
    variables = {name: host[name] for name in FROM_HOST if name in host}
    path = variables.get("PATH") or DEFAULT_PATH
    if "HOME" in variables:
        path = f"{path}:{variables['HOME']}/.local/bin"  # where uv's and pip's user installs lie; last, shadows nothing
    if tree is not None and (tree / ".venv/bin").is_dir():
        path = f"{tree}/.venv/bin:{path}"
        variables["VIRTUAL_ENV"] = f"{tree}/.venv"
    variables["PATH"] = path
    return variables


def training_environment(
    spec: RunSpec,
    *,
    host: Mapping[str, str],
    tree: Path | None,
    secrets: Mapping[str, str],
    attempt: int,
    run_dir: Path,
    tmp: Path,
    resume: Path | None,
    pin: Pin,
) -> dict[str, str]:
    """Everything a training sees (docs: the run contract). Neither `env` nor `secrets` can undo the pin."""
    variables = base_environment(host, tree)
    variables |= {"PYTHONUNBUFFERED": "1", "TMPDIR": str(tmp)}
    variables |= spec.env
    variables |= secrets
    variables |= {
        "TPUFLEET_RUN_ID": spec.id,
        "TPUFLEET_ATTEMPT": str(attempt),
        "TPUFLEET_RUN_DIR": str(run_dir),
    }
    if resume is not None:
        variables["TPUFLEET_RESUME"] = str(resume)
    for name in pin.unset:
        variables.pop(name, None)
    return variables | pin.set


def setup_environment(tree: Path) -> dict[str, str]:
    """For setup lines: the host's part without LD_PRELOAD, and the virtual environment that they are about to make."""
    variables = base_environment(os.environ, tree)
    variables.pop("LD_PRELOAD", None)
    variables["PATH"] = f"{tree}/.venv/bin:{variables['PATH']}"
    return variables
