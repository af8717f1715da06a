"""What people leave, from a host that means no good: nothing but a HostFault comes of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import pytest

from tpufleet.errors import HostFault
from tpufleet.ops import belongings
from tpufleet.ops.belongings import MOST_NOTES, Brought, _Home  # pyright: ignore[reportPrivateUsage] - one host's part
from tpufleet.ssh.agent import Agent

DATA = b"data"
SHA = json.dumps({"sha256": hashlib.sha256(DATA).hexdigest()}).encode() + b"\n"
END = b'{"end": true}\n'


class Hostile:
    """An agent, and its stream, that sends these bytes, again and again if `endless`."""

    def __init__(self, data: bytes, *, endless: bool = False) -> None:
        self._data = data
        self._left = data
        self._endless = endless

    def open(self, *_: Any) -> Hostile:
        return self

    def __enter__(self) -> Hostile:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int) -> bytes:
        data, self._left = self._left[:size], self._left[size:]
        return data

    def readline(self, limit: int) -> bytes:
        if self._endless and not self._left:
            self._left = self._data
        line, end, self._left = self._left.partition(b"\n")
        return (line + end)[:limit]


def received(directory: Path, host: Hostile) -> _Home:
    home = _Home.open(directory)
    home.receive(cast("Agent", host), {}, Brought())
    return home


def head(path: str = "a", size: str = "4", mtime: str = "1") -> bytes:
    return f'{{"path": {json.dumps(path)}, "size": {size}, "mtime_ns": {mtime}}}\n'.encode()


def test_an_honest_host_s_file_is_home(tmp_path: Path) -> None:
    home = received(tmp_path, Hostile(head("runs/a") + DATA + SHA + END))
    assert ((tmp_path / "runs/a").read_bytes(), home.index) == (DATA, {"runs/a": [4, 1]})


@pytest.mark.parametrize(
    "sent",
    [
        *(
            head(size=size)
            for size in ("Infinity", "NaN", "-1", "4.0", '"4"', "true", "null", str(2**53 + 1), "9" * 5000)
        ),
        *(head(mtime=mtime) for mtime in ("Infinity", "NaN", '"1"', "1" + "0" * 30)),
        b"[" * 60_000 + b"\n",
        head("x" * 300) + DATA + SHA,
        head("\ud800") + DATA + SHA,
        head("../a") + DATA + SHA,
    ],
    ids=lambda sent: sent[:60].decode(),
)
def test_what_cannot_be_is_the_host_s_fault_and_leaves_nothing(tmp_path: Path, sent: bytes) -> None:
    deep = tmp_path / ("y" * 200)
    with pytest.raises(HostFault):
        received(deep, Hostile(sent + END))
    assert [path.name for path in deep.rglob("*") if path.is_file()] == [belongings.INDEX]


def test_notes_have_an_end(tmp_path: Path) -> None:
    note = b'{"note": "a: gone"}\n'
    assert len(received(tmp_path, Hostile(note * MOST_NOTES + END)).notes) == MOST_NOTES
    with pytest.raises(HostFault):
        received(tmp_path, Hostile(note, endless=True))
