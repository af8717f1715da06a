"""Which Python a command will use and the versions of what decides about a training there.

Read from the names of directories: nothing is started and nothing imported, since a launch must not wait for it (torch
alone takes seconds). What can't be told is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Distribution → the name it is shown by. TPU images of old have the nightly build of libtpu.
PACKAGES = {
    **{name: name for name in ("torch", "torch_xla", "torch_tpu", "jax", "jaxlib", "libtpu", "lightning", "numpy")},
    "libtpu_nightly": "libtpu",
}
PYTHON = re.compile(r"python(3(\.\d+)?)?")
# Programs that start another one, as a rule the environment's Python.
WRAPPERS = frozenset({"sh", "bash", "dash", "zsh", "env", "uv", "nice", "nohup", "stdbuf", "timeout", "time", "make"})
# PEP 376: `torch-2.13.0+cpu.dist-info`; before wheels `numpy-1.21.5.egg-info`, `six-1.16.0-py3.10.egg-info`.
INSTALLED = re.compile(r"([A-Za-z0-9_.]{1,80})-([0-9][0-9A-Za-z.+!_]{0,60})(?:-py[0-9.]+)?\.(?:dist|egg)-info")
VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?[0-9A-Za-z+]{0,16}")
CONFIG = "pyvenv.cfg"
LINKS = 8  # of a chain of symlinks
READ = 16 << 10


class Venv(NamedTuple):
    """A virtual environment: its directory and what its pyvenv.cfg says (PEP 405)."""

    prefix: Path
    config: dict[str, str]


def versions_of(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """`{"python": "3.11.2", "torch": "2.13.0", …}` for what `command` will run with in `env`; empty for no Python."""
    with contextlib.suppress(OSError, ValueError):
        python = _interpreter(command[0], env, cwd)
        if python is not None:
            return _versions(python, env, cwd)
    return {}


def _interpreter(program: str, env: Mapping[str, str], cwd: Path) -> Path | None:
    """The Python that a program is, is written for (`#!`), or, as a shell or `uv run` does, will find."""
    found = _which(program, env, cwd)
    if found is None or PYTHON.fullmatch(found.name):
        return found
    if found.name in WRAPPERS:
        return _environments_own(env, cwd)
    with found.open("rb") as file:
        first = file.readline(512)
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    names = [Path(word).name for word in words[:2]]
    if not words:
        return None
    if PYTHON.fullmatch(names[0]):
        return Path(words[0])
    if names[0] == "env" and len(names) == 2 and PYTHON.fullmatch(names[1]):
        return _which(names[1], env, cwd)
    return _environments_own(env, cwd) if names[0] in WRAPPERS else None


def _environments_own(env: Mapping[str, str], cwd: Path) -> Path | None:
    """`.venv` where the command starts, as uv takes it, else the first `python` or `python3` on PATH."""
    names = (str(cwd / ".venv/bin/python"), "python", "python3")
    return next((found for name in names if (found := _which(name, env, cwd))), None)


def _which(program: str, env: Mapping[str, str], cwd: Path) -> Path | None:
    """The file that would be executed, its symlinks not followed."""
    folders = [""] if "/" in program else env.get("PATH", "").split(":")
    for folder in folders:
        candidate = cwd / folder / program
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


def _versions(python: Path, env: Mapping[str, str], cwd: Path) -> dict[str, str]:
    venv = _venv_of(python)
    real = Path(os.path.realpath(python))
    folder = _library(venv.prefix if venv else real.parent.parent, real)
    if folder is None:
        return {}  # a stand-in, such as a shim
    found: dict[str, str] = {}
    for site in _sites(venv, real, folder, env, cwd):
        found = {**_installed(site), **found}  # the first on the path is what is imported
    return {"python": _python_version(venv, real, folder), **found}


def _venv_of(python: Path) -> Venv | None:
    """The virtual environment that an interpreter belongs to: pyvenv.cfg lies above it, or above what it links to."""
    for _ in range(LINKS):
        config = python.parent.parent / CONFIG
        if config.is_file():
            pairs = (line.partition("=") for line in _read(config).splitlines())
            return Venv(config.parent, {key.strip().lower(): value.strip() for key, _, value in pairs})
        if not python.is_symlink():
            return None
        python = python.parent / python.readlink()
    return None


def _library(prefix: Path, real: Path) -> str | None:
    """`python3.10`: what the interpreter's library is called below a prefix."""
    if re.fullmatch(r"python3\.\d+", real.name):
        return real.name
    found = sorted(path.name for path in (prefix / "lib").glob("python3.*") if path.is_dir())
    return found[0] if len(found) == 1 else None


def _sites(venv: Venv | None, real: Path, folder: str, env: Mapping[str, str], cwd: Path) -> Iterator[Path]:
    """The directories that packages are imported from, in Python's order (its module `site`, and Debian's)."""
    for entry in env.get("PYTHONPATH", "").split(":"):
        if entry:
            yield cwd / entry
    if venv is not None:
        yield venv.prefix / "lib" / folder / "site-packages"
        if venv.config.get("include-system-site-packages", "").lower() != "true":
            return
    if "HOME" in env and not env.get("PYTHONNOUSERSITE"):
        yield Path(env["HOME"]) / ".local/lib" / folder / "site-packages"
    prefix = real.parent.parent
    if prefix == Path("/usr"):
        yield Path("/usr/local/lib") / folder / "dist-packages"
        yield Path("/usr/lib/python3/dist-packages")
    yield prefix / "lib" / folder / "site-packages"


def _installed(site: Path) -> dict[str, str]:
    """The versions of PACKAGES in one directory."""
    found: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(site) as entries:
        for entry in entries:
            match = INSTALLED.fullmatch(entry.name)
            shown = PACKAGES.get(re.sub(r"[-_.]+", "_", match[1]).lower()) if match else None
            if match and shown:
                found[shown] = match[2]
    return found


def _python_version(venv: Venv | None, real: Path, folder: str) -> str:
    """As exact as it can be told: our own, the one that the environment was made with, the one its headers name."""
    if str(real) == os.path.realpath(sys.executable):
        return ".".join(map(str, sys.version_info[:3]))
    said = (venv.config.get("version_info") or venv.config.get("version") or "") if venv else ""
    header = real.parent.parent / "include" / folder / "patchlevel.h"
    if not said and header.is_file():
        quoted = re.search(r'#define PY_VERSION\s+"([^"]+)"', _read(header))
        said = quoted[1] if quoted else ""
    version = VERSION.match(said)
    return version[0] if version else folder.removeprefix("python")


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(READ)
