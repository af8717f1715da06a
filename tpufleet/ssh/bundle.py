"""What is shipped to the hosts: the host side of the installed package, as a tar that is always the same."""

from __future__ import annotations

import functools
import hashlib
import io
import tarfile
from pathlib import Path
from typing import NamedTuple

import tpufleet

MAIN_NAME = "__main__.py"
MAIN = b"from tpufleet.host.agent import main\n\nraise SystemExit(main())\n"


class Bundle(NamedTuple):
    """`digest`: 16 hex digits over the files' names and contents; the agent's directory on a host is named by it."""

    digest: str
    tar: bytes


@functools.cache
def bundle() -> Bundle:
    """The bundle of this installation: `__main__.py` and the modules that run on hosts (standard library only)."""
    package = Path(tpufleet.__file__).parent
    shared = [package / f"{name}.py" for name in ("__init__", "restart", "publickey", "personkey")]
    modules = [*shared, *(package / "host").rglob("*.py")]
    files = {str(Path("tpufleet") / path.relative_to(package)): path.read_bytes() for path in modules}
    return pack({MAIN_NAME: MAIN, **files})


def pack(files: dict[str, bytes]) -> Bundle:
    """The bundle of these files: no times, owners or orders of the machine it is made on are in it.

    `__main__.py` comes last: tar takes an archive that was cut between two files for a whole one, so a host believes in
    an agent only when that is there.
    """
    digest = hashlib.sha256()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items(), key=lambda file: (file[0] == MAIN_NAME, file[0])):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return Bundle(digest.hexdigest()[:16], buffer.getvalue())
