"""The order in which files come, how far it is, and the room for them."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from tpufleet.errors import DiskFull, NoRoom, StateError
from tpufleet.ops import room
from tpufleet.ops.choose import EVERYTHING
from tpufleet.ops.collect import not_home
from tpufleet.ops.home import RunHome, Wanted
from tpufleet.ops.progress import Progress, Tally
from tpufleet.ops.room import Room
from tpufleet.ops.share import MOST_WHY, Missing, Share
from tpufleet.ops.transfer import LARGE, STREAMS, Received, lanes
from tpufleet.paths import LocalPaths
from tpufleet.state.lock import locked

Disk = namedtuple("Disk", "total used free")


def item(name: str, size: int) -> Wanted:
    return Wanted("gpt", name, 0, size, Path(name))


def names(found: list[list[Wanted]]) -> list[list[str]]:
    return [[wanted.path for wanted in lane] for lane in found]


def test_small_files_come_over_one_stream_in_their_order() -> None:
    assert names(lanes([item("b", 5), item("a", LARGE - 1)])) == [["b", "a"]]
    assert lanes([]) == []


def test_no_log_waits_behind_a_checkpoint_and_large_files_share_the_streams() -> None:
    large = [item(f"large-{n}", LARGE * size) for n, size in enumerate((4, 1, 1, 2, 1))]
    found = lanes([*large, item("log", 9)])
    assert len(found) == STREAMS
    assert names(found)[0][0] == "log"
    assert sorted(path for lane in names(found) for path in lane) == sorted([*(f"large-{n}" for n in range(5)), "log"])
    assert names([[wanted] for lane in found for wanted in lane if wanted.path == "large-0"]) == [["large-0"]]
    assert max(sum(wanted.size for wanted in lane) for lane in found) < 5 * LARGE


def test_two_large_files_need_no_third_stream() -> None:
    assert names(lanes([item("a", LARGE), item("b", LARGE)])) == [["a"], ["b"]]


def test_the_rate_goes_by_the_last_seconds_and_tells_the_time_left() -> None:
    tally = Tally(all_bytes=100_000_000, all_files=2)
    for second in range(1, 31):
        tally.came(1_000_000 if second > 15 else 10, float(second))
    assert tally.rate(30.0) == pytest.approx(1_000_000)
    assert tally.text(30.0) == "15.0 MB of 100.0 MB (15 %), 0 of 2 files, 1.0 MB/s, 1 min left"
    assert tally.rate(46.0) < 500_000, "a line that stands still gets slower and slower"


def test_progress_is_told_now_and_then_of_each_host_and_of_all() -> None:
    said: list[tuple[str, str]] = []
    now = 0.0
    progress = Progress(lambda *words: said.append(words), every_s=5, clock=lambda: now)
    progress.expect("tpu-0-w0", 1_000, 2)
    progress.came("tpu-0-w0", 100)
    now = 5.0
    progress.came("tpu-0-w0", 100, files=1)
    assert said == [("tpu-0-w0", "200 B of 1.0 kB (20 %), 1 of 2 files, 40 B/s, 20 s left")]
    progress.expect("tpu-1-w0", 1_000, 1)
    progress.came("tpu-1-w0", 500)
    assert len(said) == 1, "no time has passed"
    now = 10.0
    progress.came("tpu-0-w0", 800, files=1)
    assert [subject for subject, _ in said[1:]] == ["tpu-1-w0", "all hosts"], "a host that is through says so itself"
    assert said[2][1].startswith("1.5 kB of 2.0 kB (75 %), 2 of 3 files")


@pytest.mark.parametrize(
    ("total", "free", "usable"), [(1000, 500, 450), (10**12, 10**11, 10**11 - 10**8), (1000, 9, 0)]
)
def test_a_margin_stays_free_on_large_disks_and_on_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int, usable: int
) -> None:
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _path: Disk(total, total - free, free))
    assert Room(tmp_path / "not/made/yet").free == usable


def share(tmp_path: Path, **files: int) -> Share:
    state = {"id": "gpt", "state": "done", "attempts": [{"started": "2026-11-21T05:00:00Z"}]}
    points: list[dict[str, Any]] = [
        {
            "name": f"step-{n:08}",
            "step": n,
            "verified": True,
            "files": [{"path": "manifest.json", "size": 400, "sha256": str(n) * 64}],
        }
        for n in (1, 2)
    ]
    plain = [{"path": name.replace("_", "."), "size": size, "mtime_ns": 1} for name, size in files.items()]
    offered = {"state": state, "files": plain, "checkpoints": points, "log_cut": 0}
    return Share.of(RunHome.open(tmp_path / "runs", state), offered, EVERYTHING)


def test_what_has_no_room_stays_there_small_things_and_the_newest_checkpoint_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _path: Disk(1000, 340, 660))
    there, disk = share(tmp_path, big_txt=900, log_txt=100), Room(tmp_path)
    there.take_room(disk)
    assert [wanted.path for wanted in there.plain] == ["log.txt"]
    assert [parcel.name for parcel in there.parcels] == ["step-00000002"]
    assert there.kept == {"big.txt": "no room at home (900 B)", "step-00000001": "no room at home (400 B)"}
    assert not there.is_all(Received())
    lack = disk.lack()
    assert isinstance(lack, NoRoom)
    assert isinstance(lack, DiskFull)
    assert "1.8 kB are to come, and 610 B may be used" in lack.message


def test_two_projects_that_bring_home_to_one_place_take_turns(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "artifacts").symlink_to(tmp_path / "shared")
    mine, theirs = (LocalPaths(tmp_path / name / "tpufleet.yaml", "sherlock").home_lock for name in ("mine", "theirs"))
    (tmp_path / "shared").mkdir()
    with (
        locked(mine, "collect", wait_s=0, waiting=print),
        pytest.raises(StateError, match="another tpufleet command works on this fleet: tpufleet collect"),
        locked(theirs, "collect", wait_s=0, waiting=print),
    ):
        pass
    with locked(theirs, "collect", wait_s=0, waiting=print):
        pass


def test_what_is_not_home_is_said_in_few_lines() -> None:
    missing = [Missing(f"gpt-{n}", "step-1", "left out by --best") for n in range(5)]
    missing += [Missing("gpt-9", "step-1", "broken", told=True), Missing("one", "log.txt", "cut")]
    assert not_home(missing) == [
        "gpt-0, gpt-1, gpt-2 and 2 more: step-1 (left out by --best)",
        "one: log.txt (cut)",
    ]


def offered(*steps: int) -> dict[str, Any]:
    """A run that is done, and its checkpoints, none of which is as its manifest says; as a host offers it."""
    points = [
        {"name": f"step-{n:08d}", "step": n, "verified": False, "problem": "it has no manifest", "files": []}
        for n in steps
    ]
    state = {"id": "gpt", "state": "done", "began": "2026-11-21T18:00:00Z", "attempts": [{}]}
    return {"state": state, "files": [], "checkpoints": points}


def test_a_checkpoint_that_is_broken_is_told_with_the_reason_and_only_once(tmp_path: Path) -> None:
    home = RunHome.peek(tmp_path, offered()["state"])
    found = list(Share.of(home, offered(2000, 1000), EVERYTHING).flaws())
    assert [(flaw.name, flaw.why, flaw.is_known) for flaw in found] == [
        ("step-00002000", "it has no manifest", False),
        ("step-00001000", "it has no manifest", False),
    ]
    assert all(flaw.is_known for flaw in Share.of(home, offered(2000, 1000), EVERYTHING).flaws())
    hostile = offered(3000)
    hostile["checkpoints"][0]["problem"] = ["x" * 10_000]
    (flaw,) = Share.of(home, hostile, EVERYTHING).flaws()
    assert len(flaw.why) == MOST_WHY
    hostile["checkpoints"][0]["problem"] = None
    assert next(iter(Share.of(home, hostile, EVERYTHING).flaws())).why == "its host doesn't say why"
