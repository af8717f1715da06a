"""A run's files at home: what is missing, what arrives, and what a host may not do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tpufleet.errors import HostFault
from tpufleet.ops.home import RunHome, Wanted, before_all_is_home, is_over

STATE = {"id": "gpt", "attempts": [{"n": 1, "started": "2026-11-21T05:00:00Z"}]}


def home_at(tmp_path: Path, **changes: Any) -> RunHome:
    return RunHome.open(tmp_path / "runs", {**STATE, **changes})


def offered(path: str, data: bytes, mtime_ns: int = 1) -> dict[str, Any]:
    return {"path": path, "size": len(data), "mtime_ns": mtime_ns}


def arrive(home: RunHome, item: Wanted | None, data: bytes) -> None:
    """As a transfer would do it."""
    assert item
    with item.part.open("ab") as file:
        file.write(data[item.offset :])
    home.finish(item)
    home.write_index()


def checkpoint(step: int, **files: bytes) -> dict[str, Any]:
    entries = [{"path": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()]
    manifest = {"path": "manifest.json", "size": 2, "sha256": hashlib.sha256(b"{%d" % step).hexdigest()}
    return {"name": f"step-{step:08}", "verified": True, "files": [*entries, manifest]}


def test_a_file_comes_once_and_again_only_when_it_changed(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    arrive(home, home.wanted(offered("best.txt", b"AAAA")), b"AAAA")
    assert home_at(tmp_path).wanted(offered("best.txt", b"AAAA")) is None
    assert home_at(tmp_path).wanted(offered("best.txt", b"BBBB", mtime_ns=2)) is not None, "rewritten, the same size"


def test_only_the_new_end_of_a_log_is_fetched(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    arrive(home, home.wanted(offered("log.txt", b"one\n")), b"one\n")
    item = home_at(tmp_path).wanted(offered("log.txt", b"one\ntwo\n", mtime_ns=2))
    assert item
    assert item.offset == 4
    arrive(home, item, b"one\ntwo\n")
    assert (home.directory / "log.txt").read_bytes() == b"one\ntwo\n"


def test_a_cut_checkpoint_is_taken_up_at_the_byte_also_by_the_next_command(tmp_path: Path) -> None:
    offer = checkpoint(10, **{"model.pt": b"0123456789"})
    first = next(item for item in home_at(tmp_path).wanted_of_checkpoint(offer) if item.path.endswith("model.pt"))
    first.part.write_bytes(b"0123")
    again = next(item for item in home_at(tmp_path).wanted_of_checkpoint(offer) if item.path.endswith("model.pt"))
    assert again.offset == 4
    assert not (tmp_path / "earlier").exists()


def test_what_came_of_a_checkpoint_is_no_part_of_another_one_of_the_same_step(tmp_path: Path) -> None:
    offer = checkpoint(10, **{"model.pt": b"0123456789"})
    home_at(tmp_path).wanted_of_checkpoint(offer)[0].part.write_bytes(b"0123")
    anew = checkpoint(10, **{"model.pt": b"9876543210"})
    anew["files"][1] |= {"sha256": hashlib.sha256(b"{new").hexdigest()}
    home = home_at(tmp_path)
    home.forget_parts([anew])
    assert home.wanted_of_checkpoint(anew)[0].offset == 0
    assert home.wanted_of_checkpoint(offer)[0].offset == 0, "its half is gone"


def test_a_run_is_over_when_what_it_left_is_home() -> None:
    done = {**STATE, "state": "done"}
    assert not is_over(before_all_is_home(done))
    assert is_over(done)
    assert is_over(before_all_is_home({**STATE, "state": "failed"})), "nobody starts it again by itself"


def test_a_checkpoint_appears_only_when_every_file_is_right(tmp_path: Path) -> None:
    home, offer = home_at(tmp_path), checkpoint(10, **{"model.pt": b"0123"})
    items = home.wanted_of_checkpoint(offer)
    for item, data in zip(items, (b"0124", b"{10"[: items[1].size]), strict=True):
        item.part.write_bytes(data)
    with pytest.raises(HostFault, match="damaged"):
        home.finish_checkpoint(offer, items)
    assert not (home.directory / "checkpoints" / "step-00000010").exists()
    assert not items[0].part.exists(), "the next try fetches it again"


def test_a_checkpoint_that_was_written_anew_replaces_the_one_at_home(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    for model, manifest in ((b"old", b"{1"), (b"new", b"{2")):
        offer = checkpoint(10, **{"model.pt": model})
        offer["files"][1] |= {"sha256": hashlib.sha256(manifest).hexdigest()}
        items = home.wanted_of_checkpoint(offer)
        for item, data in zip(items, (model, manifest), strict=True):
            item.part.write_bytes(data)
        home.finish_checkpoint(offer, items)
        assert home.wanted_of_checkpoint(offer) == []
    assert (home.directory / "checkpoints/step-00000010/model.pt").read_bytes() == b"new"


def test_a_file_that_became_a_directory_and_one_that_was_a_directory_make_way(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    arrive(home, home.wanted(offered("thing", b"x")), b"x")
    arrive(home, home.wanted(offered("thing/in", b"y")), b"y")
    assert (home.directory / "thing/in").read_bytes() == b"y"
    arrive(home, home.wanted(offered("thing", b"z")), b"z")
    assert (home.directory / "thing").read_bytes() == b"z"


def test_what_an_earlier_life_left_is_kept_apart(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    arrive(home, home.wanted(offered("log.txt", b"old\n")), b"old\n")
    anew = home_at(tmp_path, attempts=[{"n": 1, "started": "2026-11-22T00:00:00Z"}])
    assert not (anew.directory / "log.txt").exists()
    assert (tmp_path / "earlier/gpt.1/log.txt").read_bytes() == b"old\n"


def test_an_artifact_cannot_pose_as_the_run_s_own_record(tmp_path: Path) -> None:
    assert home_at(tmp_path).wanted(offered("run.json", b"{}")) is None


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", ".hidden", "a//b", "a\nb", "a\x1bb", "a/."])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(HostFault, match="impossible name"):
        home_at(tmp_path).wanted(offered(path, b"x"))


@pytest.mark.parametrize("run", ["../x", "", "a/b", "A", "x" * 200])
def test_a_run_of_an_impossible_name_gets_no_directory(tmp_path: Path, run: str) -> None:
    with pytest.raises(HostFault, match="impossible name"):
        home_at(tmp_path, id=run)
