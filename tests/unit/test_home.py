"""A run's files at home: what is missing, what arrives, and what a host may not do."""

from __future__ import annotations

import hashlib
import os
import shutil
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
    send(item, data)
    home.finish(item)
    home.write_index()


def send(item: Wanted, data: bytes) -> None:
    item.part.parent.mkdir(parents=True, exist_ok=True)
    with item.part.open("r+b" if item.offset else "wb") as file:
        file.seek(item.offset)
        file.write(data[item.offset :])


def change(file: Path, data: bytes) -> None:
    """Somebody writes other bytes into a file at home, a second later: clocks of disks are coarse."""
    before = file.stat()
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))


def bring(home: RunHome, offer: dict[str, Any], **data: bytes) -> list[str]:
    """The checkpoint comes, as far as it is missing; the names of the files that do."""
    items = home.wanted_of_checkpoint(offer)
    for item in items:
        send(item, {"manifest.json": b"{%d" % int(offer["name"][-8:]), **data}[item.path.split("/", 2)[2]])
    home.finish_checkpoint(offer, items)
    home.write_index()
    return [item.path.split("/", 2)[2] for item in items]


def checkpoint(step: int, **files: bytes) -> dict[str, Any]:
    entries = [{"path": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()]
    text = b"{%d" % step
    manifest = {"path": "manifest.json", "size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
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
    send(first, b"0123")
    again = next(item for item in home_at(tmp_path).wanted_of_checkpoint(offer) if item.path.endswith("model.pt"))
    assert again.offset == 4
    assert not (tmp_path / "earlier").exists()


def test_what_came_of_a_checkpoint_is_no_part_of_another_one_of_the_same_step(tmp_path: Path) -> None:
    offer = checkpoint(10, **{"model.pt": b"0123456789"})
    send(home_at(tmp_path).wanted_of_checkpoint(offer)[0], b"0123")
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


def test_a_file_of_a_checkpoint_that_came_whole_is_read_before_it_counts(tmp_path: Path) -> None:
    home, offer = home_at(tmp_path), checkpoint(10, **{"model.pt": b"0123"})
    send(home.wanted_of_checkpoint(offer)[0], b"0123")
    assert home.wanted_of_checkpoint(offer)[0].left == 0
    send(home.wanted_of_checkpoint(offer)[0], b"0124")
    home.wanted_of_checkpoint(offer)[0].part.write_bytes(b"0124")
    assert home.wanted_of_checkpoint(offer)[0].offset == 0, "one flipped byte: it comes again"


def test_a_checkpoint_that_was_written_anew_replaces_the_one_at_home(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    for model, manifest in ((b"old", b"{1"), (b"new", b"{2")):
        offer = checkpoint(10, **{"model.pt": model})
        offer["files"][1] |= {"size": 2, "sha256": hashlib.sha256(manifest).hexdigest()}
        items = home.wanted_of_checkpoint(offer)
        for item, data in zip(items, (model, manifest), strict=True):
            send(item, data)
        home.finish_checkpoint(offer, items)
        assert home.wanted_of_checkpoint(offer) == []
    assert (home.directory / "checkpoints/step-00000010/model.pt").read_bytes() == b"new"


def test_a_file_without_a_byte_is_no_reason_for_a_checkpoint_to_stay_away(tmp_path: Path) -> None:
    home, offer = home_at(tmp_path), checkpoint(10, **{"empty": b""})
    assert bring(home, offer, empty=b"") == ["empty", "manifest.json"]
    assert (home.directory / "checkpoints/step-00000010/empty").read_bytes() == b""
    assert home_at(tmp_path).wanted_of_checkpoint(offer) == []


def test_of_a_damaged_checkpoint_only_the_damaged_file_comes_again_and_no_other_is_touched(tmp_path: Path) -> None:
    home, files = home_at(tmp_path), {"model.pt": b"0123", "rng.pt": b"4567"}
    offer = checkpoint(10, **files)
    bring(home, offer, **files)
    folder = home.directory / "checkpoints/step-00000010"
    good = (folder / "rng.pt").stat()
    change(folder / "model.pt", b"0x23")
    assert bring(home_at(tmp_path), offer, **files) == ["model.pt"]
    assert (folder / "model.pt").read_bytes() == b"0123"
    after = (folder / "rng.pt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (good.st_ino, good.st_mtime_ns)
    assert home_at(tmp_path).wanted_of_checkpoint(offer, verify=True) == []


def test_a_flipped_byte_that_left_no_trace_in_the_file_s_times_is_found_when_all_is_read(tmp_path: Path) -> None:
    home, offer = home_at(tmp_path), checkpoint(10, **{"model.pt": b"0123"})
    bring(home, offer, **{"model.pt": b"0123"})
    model = home.directory / "checkpoints/step-00000010/model.pt"
    times = model.stat()
    model.write_bytes(b"0x23")
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert home_at(tmp_path).wanted_of_checkpoint(offer) == [], "as with git and rsync: not looked into"
    assert [item.path for item in home_at(tmp_path).wanted_of_checkpoint(offer, verify=True)] == [
        "checkpoints/step-00000010/model.pt"
    ]


def test_a_home_that_was_copied_elsewhere_is_read_once_and_nothing_of_its_checkpoints_comes_again(
    tmp_path: Path,
) -> None:
    home, offer = home_at(tmp_path), checkpoint(10, **{"model.pt": b"0123"})
    bring(home, offer, **{"model.pt": b"0123"})
    shutil.copytree(home.directory, tmp_path / "copy")
    shutil.rmtree(home.directory)
    shutil.move(tmp_path / "copy", home.directory)
    assert home_at(tmp_path).wanted_of_checkpoint(offer) == []


@pytest.mark.parametrize("path", ["log.txt", "best.txt"])
def test_a_plain_file_that_was_changed_at_home_comes_again(tmp_path: Path, path: str) -> None:
    home, offer = home_at(tmp_path), offered(path, b"AAAA")
    arrive(home, home.wanted(offer), b"AAAA")
    change(home.directory / path, b"AxAA")
    again = home_at(tmp_path)
    item = again.wanted(offer)
    assert item
    assert (item.offset, item.size) == (0, 4)
    arrive(again, item, b"AAAA")
    assert home_at(tmp_path).wanted(offer) is None


@pytest.mark.parametrize("there", [b"AAAA", b"AAAABBBB"])
def test_a_log_whose_bytes_are_others_than_the_host_s_comes_again_from_its_beginning(
    tmp_path: Path, there: bytes
) -> None:
    home = home_at(tmp_path)
    arrive(home, home.wanted(offered("log.txt", b"AxAA")), b"AxAA")
    asked = {**offered("log.txt", there), "sha256": hashlib.sha256(there).hexdigest()}
    item = home_at(tmp_path).wanted(asked)
    assert item
    assert (item.offset, item.size) == (0, len(there))


def test_the_tail_of_a_log_that_was_cut_on_its_way_is_taken_up_at_the_byte(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    arrive(home, home.wanted(offered("log.txt", b"one\n")), b"one\n")
    with (home.directory / "log.txt").open("ab") as log:
        log.write(b"tw")  # and then the line was cut, so nobody wrote it down
    item = home_at(tmp_path).wanted(offered("log.txt", b"one\ntwo\n", mtime_ns=2))
    assert item
    assert item.offset == 6


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


def test_a_life_that_made_way_for_another_goes_on_where_it_was(tmp_path: Path) -> None:
    """Two fleets of one name, brought home to one place in turns: each run's lives stay whole, and no third appears."""
    mine, theirs = STATE, {**STATE, "began": "2026-11-22T00:00:00Z"}
    for name, state in (("mine", mine), ("theirs", theirs)) * 2:
        home = RunHome.open(tmp_path / "runs", state)
        if item := home.wanted(offered("log.txt", name.encode())):
            arrive(home, item, name.encode())
        assert (home.directory / "log.txt").read_text() == name
    assert [path.name for path in (tmp_path / "earlier").iterdir()] == ["gpt.1"]
    assert (tmp_path / "earlier/gpt.1/log.txt").read_text() == "mine"
    assert RunHome.open(tmp_path / "runs", mine).wanted(offered("log.txt", b"mine")) is None, "it was home already"


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    arrive(home, home.wanted(offered("log.txt", b"one")), b"one")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert RunHome.peek(tmp_path / "runs", STATE).wanted(offered("log.txt", b"one")) is None
    anew = {**STATE, "began": "2026-11-22T00:00:00Z"}
    item = RunHome.peek(tmp_path / "runs", anew).wanted(offered("log.txt", b"one"))
    assert item
    assert (item.run, item.offset) == ("gpt", 0), "another life's log is none of this one's"
    assert RunHome.peek(tmp_path / "runs", {**STATE, "id": "new"}).wanted(offered("log.txt", b"x"))
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


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
