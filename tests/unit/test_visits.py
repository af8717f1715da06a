"""What a visit as a person means."""

from __future__ import annotations

from tpufleet.names import Seat, UserName
from tpufleet.ops.visits import Visit, judged

ADA, SEAT = UserName("ada"), Seat("tpu-0-w0:2")
WELL = "user=ada\nhome=750\npin=2\nchip=1\nchip=2\ntools=yes\nfree=9000000\nclone=yes\n"


def of(said: str, *, cloned: bool = True) -> Visit:
    return judged(ADA, SEAT, [2], said, cloned=cloned)


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
        (("clone=yes\n", ""), "the code is not in the home"),
    ):
        assert of(WELL.replace(*wrong)).faults == (sentence,), wrong


def test_who_has_a_whole_host_needs_all_its_chips() -> None:
    said = WELL.replace("pin=2", "pin=0,1,2,3").replace("chip=1\n", "chip=0\nchip=1\n")
    visit = judged(ADA, Seat("tpu-0-w0"), [0, 1, 2, 3], said, cloned=True)
    assert visit.faults == ("can't open chip 3",)


def test_without_code_in_the_fleet_file_there_is_nothing_to_miss() -> None:
    visit = of(WELL.replace("clone=yes\n", ""), cloned=False)
    assert (visit.faults, visit.clone) == ((), None)


def test_an_answer_that_is_none_is_all_faults_and_no_crash() -> None:
    assert len(of("").faults) == 7
    assert of("free=x\nchip=\nchip=-1\npin=a,b\n").faults
