"""What a hostile host says that its runs left: refused with a sentence, before anything is made of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpufleet.errors import HostFault
from tpufleet.ops.home import Wanted
from tpufleet.ops.offers import offers
from tpufleet.ops.transfer import Received, fetch
from tpufleet.paths import write_atomically

SHA = "a" * 64
RUN: dict[str, Any] = {
    "state": {"id": "gpt", "state": "done", "attempts": [{"n": 1, "started": "2026-11-21T05:00:00Z"}]},
    "log_cut": 0,
    "files": [{"path": "log.txt", "size": 5, "mtime_ns": 1}],
    "checkpoints": [
        {
            "name": "step-00000001",
            "step": 1,
            "verified": True,
            "problem": None,
            "files": [{"path": "manifest.json", "size": 5, "sha256": SHA}],
        }
    ],
}

Change = Callable[[dict[str, Any]], object]


def test_what_an_honest_host_says_is_taken_as_it_is() -> None:
    assert offers({"runs": [RUN]}, ["gpt"]) == [RUN]


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["state"].update(id="another"),
        lambda run: run["state"].update(id=["gpt"]),
        lambda run: run["state"].update(state="great"),
        lambda run: run["state"].pop("attempts"),
        lambda run: run["state"].update(attempts=[5]),
        lambda run: run["state"].update(attempts=[{}]),
        lambda run: run.update(state=None),
        lambda run: run.update(files={}),
        lambda run: run.update(log_cut="x"),
        lambda run: run["files"][0].update(size=-1),
        lambda run: run["files"][0].update(size=2**70),
        lambda run: run["files"][0].update(size=True),
        lambda run: run["files"][0].update(size="5"),
        lambda run: run["files"][0].update(path=7),
        lambda run: run["files"][0].update(mtime_ns=None),
        lambda run: run["files"][0].update(sha256="../../x"),
        lambda run: run["files"].append("log.txt"),
        lambda run: run["checkpoints"][0].update(name="../../.ssh"),
        lambda run: run["checkpoints"][0].update(name="step-00000001\n"),
        lambda run: run["checkpoints"][0].update(step="1"),
        lambda run: run["checkpoints"][0].update(verified="yes"),
        lambda run: run["checkpoints"][0]["files"][0].update(sha256="A" * 64),
        lambda run: run["checkpoints"][0]["files"][0].pop("sha256"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(change: Change) -> None:
    run = copy.deepcopy(RUN)
    change(run)
    with pytest.raises(HostFault, match="its list of what runs left makes no sense"):
        offers({"runs": [run]}, ["gpt"])


@pytest.mark.parametrize("answer", [{}, {"runs": None}, {"runs": [RUN, RUN]}, {"runs": []}, {"runs": [5]}])
def test_a_host_answers_for_the_runs_that_were_asked_for(answer: dict[str, Any]) -> None:
    with pytest.raises(HostFault):
        offers(answer, ["gpt"])


class Sent:
    """A host's stream of one file."""

    def __init__(self, path: str, data: bytes) -> None:
        head = {"run": "gpt", "path": path, "offset": 0, "length": len(data)}
        self._left = json.dumps(head).encode() + b"\n" + data

    def open(self, _verb: str, _payload: object) -> Sent:
        return self

    def __enter__(self) -> Sent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def readline(self, _limit: int) -> bytes:
        line, _, self._left = self._left.partition(b"\n")
        return line + b"\n"

    def read(self, count: int) -> bytes:
        data, self._left = self._left[:count], self._left[count:]
        return data


def test_what_comes_does_not_go_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    part = tmp_path / "parts/log.txt"
    part.parent.mkdir()
    part.symlink_to(elsewhere)
    item = Wanted("gpt", "log.txt", 0, 3, part)
    received = Received()
    fetch(Sent("log.txt", b"abc"), [item], received, lambda *_: None)  # pyright: ignore[reportArgumentType] # it is asked for this alone
    assert elsewhere.read_text() == "precious"
    assert part.read_text() == "abc"
    assert not part.is_symlink()
    assert item in received.arrived


def test_no_file_is_written_through_a_link_beside_it(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / ".nodes.json.part").symlink_to(elsewhere)
    write_atomically(tmp_path / "nodes.json", b"{}")
    assert elsewhere.read_text() == "precious"
    assert (tmp_path / "nodes.json").read_bytes() == b"{}"
    assert not (tmp_path / "nodes.json").is_symlink()
