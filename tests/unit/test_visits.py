"""What a visit as a person means."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tpufleet.names import Seat, UserName
from tpufleet.ops.visits import LOOK, Typed, Visit, judged

ADA, SEAT = UserName("ada"), Seat("tpu-0-w0:2")
WELL = "user=ada\nhome=750\npin=2\nchip=1\nchip=2\ntools=yes\nfree=9000000\nclone=yes\ntrain=yes\n"
TYPED = Typed("code", "python")


def of(said: str, typed: Typed = TYPED) -> Visit:
    return judged(ADA, SEAT, [2], said, typed)


def test_somebody_for_whom_all_is_there_has_no_faults() -> None:
    visit = of(WELL)
    assert (visit.faults, visit.login, visit.chip, visit.pinned, visit.clone) == ((), True, True, True, True)
    assert visit.free == 9_000_000 * 1024


def test_each_thing_that_is_wrong_is_a_sentence() -> None:
    for wrong, sentence in (
        (("user=ada", "user=root"), "the account is root"),
        (("user=ada", "user=ada\nsudo=yes"), "may use sudo"),
        (("home=750", "home=755"), "others may enter the home (mode 755)"),
        (("chip=2\n", ""), "can't open chip 2"),
        (("pin=2", "pin="), "is pinned to nothing"),
        (("pin=2", "pin=0"), "is pinned to 0"),
        (("tools=yes\n", ""), "on-chip is not there"),
        (("free=9000000", "free=10"), "has 10.2 kB of disk left"),
        (("clone=yes\ntrain=yes\n", ""), "the code is not in the home"),
        (("train=yes\n", ""), "python, which the card's training begins with, is not there"),
    ):
        assert of(WELL.replace(*wrong)).faults == (sentence,), wrong


def test_who_has_a_whole_host_needs_all_its_chips() -> None:
    said = WELL.replace("pin=2", "pin=0,1,2,3").replace("chip=1\n", "chip=0\nchip=1\n")
    visit = judged(ADA, Seat("tpu-0-w0"), [0, 1, 2, 3], said, TYPED)
    assert visit.faults == ("can't open chip 3",)


def test_without_code_in_the_fleet_file_there_is_nothing_to_miss() -> None:
    visit = of(WELL.replace("clone=yes\n", ""), Typed(None, "python"))
    assert (visit.faults, visit.clone) == ((), None)


def test_an_answer_that_is_none_is_all_faults_and_no_crash() -> None:
    assert len(of("").faults) == 7
    assert of("free=x\nchip=\nchip=-1\npin=a,b\n").faults


@pytest.mark.parametrize("number", ["9" * 5000, "\u0663", "-1", "1e9", "Infinity"])
def test_numbers_that_are_none_are_not_counted_and_what_is_told_of_them_is_short(number: str) -> None:
    said = (
        f"user={number}\nhome={number}\npin={number}\nchip={number}\nfree={number}\ntools=yes\nclone=yes\ntrain=yes\n"
    )
    visit = of(said)
    assert (visit.chip, visit.pinned, visit.free, len(visit.faults)) == (False, False, None, 5)
    assert max(map(len, visit.faults)) < 120


def look(home: Path, word: str, workdir: str = ".", before: str = "") -> bool:
    """Whether the training's first word is found in `home`, whose code is in `code`."""
    words = ["bash", "-c", LOOK, "look", "code", word, workdir, before]
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    return "train=yes" in said.splitlines()


def executable(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_the_training_s_first_word_is_looked_for_where_it_is_typed(tmp_path: Path) -> None:
    executable(tmp_path / "code" / "sub" / "train.sh")
    executable(tmp_path / "code" / ".venv" / "bin" / "inside")
    assert look(tmp_path, "sh")
    assert look(tmp_path, "inside", "sub")
    assert look(tmp_path, "./train.sh", "sub")
    assert not look(tmp_path, "./train.sh")
    assert not look(tmp_path, "outside")
    assert not look(tmp_path, "outside", before="yes")  # what comes before has been typed: there is a .venv


def test_what_a_login_or_the_card_s_first_commands_bring_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    assert look(tmp_path, "inside", before="yes")
    executable(tmp_path / ".local" / "bin" / "uv-like")
    (tmp_path / ".profile").write_text("PATH=$HOME/.local/bin:$PATH\n")
    assert look(tmp_path, "uv-like")


def test_the_training_s_first_word_is_no_shell_s_to_read(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    assert not look(tmp_path, f"x; touch {tmp_path}/made; $(touch {tmp_path}/made)")
    assert not look(tmp_path, "--help")
    assert not (tmp_path / "made").exists()
