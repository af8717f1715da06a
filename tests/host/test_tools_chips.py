"""chips: who is on which chip, here and on the other hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpufleet.host.tools import chips

from .harness import PYTHON, Host, wait_until
from .tools import SLEEP, TOOLS, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.clear()


def test_each_chip_has_a_line_that_says_who_is_on_it_with_what(desk: Desk) -> None:
    desk.sit({"ada": [0], "grace": [1]})
    with desk.busy("--", *SLEEP) as on_seat, desk.busy("3", "--", *SLEEP, user="bob") as elsewhere:
        told = desk.call("chips").stdout.splitlines()
        clock = r"\d\d:\d\d"
        assert re.fullmatch(r"CHIP +WHO +UTC +PID +COMMAND", told[0])
        assert re.fullmatch(rf"tpu-0-w0:0 +ada +in use +{clock} +{on_seat.pid} +sleep 600", told[1])
        assert re.fullmatch(r"tpu-0-w0:1 +grace +idle", told[2])
        assert re.fullmatch(r"tpu-0-w0:2 +free", told[3])
        assert re.fullmatch(rf"tpu-0-w0:3 +bob +in use +{clock} +{elsewhere.pid} +sleep 600", told[4])
        assert max(map(len, told)) <= 80
        elsewhere.terminate()
        on_seat.terminate()


def test_the_json_says_the_same_for_programs(desk: Desk) -> None:
    desk.sit({"ada": [0]})
    with desk.busy("--", *SLEEP) as process:
        first, second, *_ = desk.chips()
        since = first.pop("since")
        assert abs(time.time() - time.mktime(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ")) + time.timezone) < 60
        expected = {"chip": 0, "device": "dev/accel0", "seat": "ada", "state": "person", "who": "ada", "run": None}
        unknown = {"hbm_used": None, "hbm_total": None, "duty_pct": None}
        assert first == {**expected, "pid": process.pid, "command": "sleep 600", **unknown}
        assert (second["state"], second["who"], second["since"], second["pid"]) == ("free", None, None, None)
        (here,) = json.loads(desk.call("chips", "--json").stdout)["hosts"]
        assert here["host"] == "tpu-0-w0"
        process.terminate()


def test_memory_and_load_are_shown_while_they_are_fresh(desk: Desk) -> None:
    usage = desk.base / "usage.json"
    usage.write_text(json.dumps({"0": {"hbm_used": 3 << 30, "hbm_total": 16 << 30, "duty_pct": 87.4}, "1": "odd"}))
    assert re.search(r"tpu-0-w0:0 +free +3\.0/16G +87%", desk.call("chips", "--here").stdout)
    os.utime(usage, (time.time() - 600, time.time() - 600))
    assert "16G" not in desk.call("chips", "--here").stdout


def test_vfio_chips_are_counted_in_their_order(desk: Desk) -> None:
    (desk.root / "dev/vfio").mkdir()
    for number in (12, 7, 9):
        (desk.root / f"dev/vfio/{number}").touch()
    (desk.root / "dev/vfio/vfio").touch()
    for chip in range(4):
        desk.device(chip).unlink()
    assert [chip["device"] for chip in desk.chips()] == ["dev/vfio/7", "dev/vfio/9", "dev/vfio/12"]


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"{",
        b"[]",
        b"\0" * 5000,
        b'{"person": "\\u001b[2J", "command": "\\u001b]52;c;eA==\\u0007", "since": "\\u202e"}',
        b'{"person": 7, "pid": "x", "command": [], "since": 9}',
        b'{"person": "root", "pid": -1, "since": "2026-11-21T13:00:00Z"}',
        b'{"run": "\\u001b[31mgpt"}',
    ],
)
def test_what_a_lease_says_is_not_trusted(desk: Desk, note: bytes) -> None:
    with desk.lease(1).open("r+b") as file:
        file.write(note)
    with subprocess.Popen(["flock", str(desk.lease(1)), "cat"], stdin=subprocess.PIPE) as holder:
        wait_until(lambda: desk.states()[1] != "free", "the lease is held")
        told = desk.call("chips", "--here")
        assert (told.returncode, told.stderr) == (0, "")
        assert not re.search(r"[\033\u202e\u0007]", told.stdout)
        assert "tpu-0-w0:1" in told.stdout
        assert holder.stdin
        holder.stdin.close()


def test_a_run_of_the_queue_is_shown_with_what_it_runs(make_host: Callable[..., Host]) -> None:
    host = make_host()
    host.enqueue(host.spec("gpt-lr3", command=[*SLEEP], chips=1))
    state = host.wait_for("gpt-lr3", "running")

    def shown() -> dict[str, object]:
        command = [PYTHON, "-IS", str(TOOLS / "chips.py"), "--here", "--json"]
        said = subprocess.run(command, env=host.env, capture_output=True, check=True).stdout
        row: dict[str, object] = json.loads(said)["chips"][0]
        return row

    wait_until(lambda: shown()["command"] == "sleep 600", "the training has begun")
    row = shown()
    assert (row["state"], row["run"], row["pid"]) == ("run", "gpt-lr3", state["pid"])


# -------------------------------------------------------------------------------------------------------- other hosts

EVE = {"chip": 0, "state": "person", "who": "eve\033", "pid": 7, "command": "a\u202eb"}
SSH = f"""\
#!/bin/sh
echo "$*" >> "$HOME/asked"
for word; do host=$before; before=$word; done
case $host in
  tpu-1-w0) printf %s '{json.dumps({"host": "x", "chips": [EVE]})}';;
  tpu-2-w0) echo "eve@tpu-2-w0: Permission denied (publickey)." >&2; exit 255;;
  tpu-3-w0) echo "ssh: connect to host tpu-3-w0 port 22: Connection timed out" >&2; exit 255;;
  tpu-4-w0) printf '{{"chips": "\\033[2J';;
  tpu-5-w0) exec sleep 600;;
esac
"""


@pytest.fixture
def fleet(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk whose ssh is a script, in whose environment this process is."""
    (desk.bin / "ssh").write_text(SSH)
    (desk.bin / "ssh").chmod(0o755)
    for name, value in desk.env("ada", LD_PRELOAD="").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(chips, "REMOTE_S", 1.0)
    return desk


def test_other_hosts_are_asked_side_by_side_and_none_holds_up_the_list(fleet: Desk) -> None:
    fleet.sit({}, hosts=[f"tpu-{n}-w0" for n in range(6)])
    started = time.monotonic()
    told = chips.answer([])
    assert time.monotonic() - started < 10
    lines = told.splitlines()
    assert re.fullmatch("tpu-1-w0:0 +eve\ufffd +in use +7 +a\ufffdb", lines[5])
    assert lines[6:] == [
        "tpu-3-w0 can't be reached: ssh: connect to host tpu-3-w0 port 22: Connection timed out",
        "tpu-4-w0 can't be reached: no answer",
        "tpu-5-w0 can't be reached: no answer in time",
        "tpu-2-w0: your key isn't here to log in there; come with ssh -A to see them, too",
    ]
    asked = (fleet.home / "asked").read_text().splitlines()
    assert len(asked) == 5  # not itself
    assert all("BatchMode=yes -o ConnectTimeout=3" in line and " chips --here --json" in line for line in asked)


def test_a_host_of_a_name_that_ssh_would_take_for_an_option_is_not_asked(fleet: Desk) -> None:
    fleet.sit({}, hosts=["tpu-0-w0", "-oProxyCommand=touch x", "a b", "$(touch x)"])
    chips.answer([])
    assert not (fleet.home / "asked").exists()


def test_only_this_host_is_looked_at_when_that_is_asked_for(fleet: Desk) -> None:
    fleet.sit({}, hosts=["tpu-0-w0", "tpu-1-w0"])
    chips.answer(["--here"])
    assert not (fleet.home / "asked").exists()
    answer = json.loads(chips.answer(["--json"]))
    assert [(host["host"], len(host["chips"])) for host in answer["hosts"]] == [("tpu-0-w0", 4), ("tpu-1-w0", 1)]
    assert answer["problems"] == []


def test_an_answer_of_a_host_that_makes_no_sense_is_no_trouble() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"chip": None},
        {"chip": "\033", "hbm_used": "x", "duty_pct": 1e999},
        {"pid": [], "since": {}, "who": 5},
    ]
    lines = chips.picture({"h": odd}, [], 80).splitlines()
    assert len(lines) == 5
    assert all(line.isprintable() and len(line) <= 80 for line in lines)


# --------------------------------------------------------------------------------------------------------------- calls


def test_a_reader_that_leaves_early_is_no_trouble(desk: Desk) -> None:
    line = (
        f"{sys.executable} -IS {desk.bin}/chips --here | true; {sys.executable} -IS {desk.bin}/chips --here | head -n 1"
    )
    done = subprocess.run(["sh", "-c", line], env=desk.env("ada"), capture_output=True, text=True, check=True)
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)


def test_a_terminal_that_is_not_utf_8_gets_what_it_can_show(desk: Desk) -> None:
    with desk.busy("1", "--", "sh", "-c", "sleep 600", "ü" * 100) as process:
        told = desk.call("chips", "--here", env={"PYTHONIOENCODING": "", "LC_ALL": "en_US.ISO-8859-1"})
        assert told.returncode == 0
        process.kill()


def test_a_wrong_option_is_told_how_to_be_right(desk: Desk) -> None:
    refused = desk.call("chips", "--everything\033")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "chips: there is no --everything\ufffd; see chips --help\n"
