"""on-chip: one chip, one process tree, whatever happens to it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from tpufleet.host import chips as product_chips, holders
from tpufleet.host.pin import Pin, pin_to_chips, pin_to_cpu
from tpufleet.host.places import Places
from tpufleet.host.tools import on_chip

from .harness import PYTHON, alive, kill, wait_until
from .tools import SLEEP, Desk, desk, ended, read

__all__ = ["desk"]  # a fixture

TOLD = {
    "PATH": "/bin",
    "LIBTPU_INIT_ARGS": "--given=1",
    "TPU_PROCESS_ADDRESSES": "stale",
    "TPU_HOST_BOUNDS": "stale",
    "TPU_SKIP_MDS_QUERY": "stale",
    "TPU_MESH_CONTROLLER_PORT": "stale",
    "TPU_VISIBLE_CHIPS": "stale",
    "TPU_LOG_DIR": "stale",
    "JAX_PLATFORMS": "stale",
    "CLOUD_TPU_TASK_ID": "stale",
}
SHAPES = [
    (tuple(range(first, first + size)), on_host)
    for on_host in (1, 2, 4, 8)
    for size in (1, 2, 4, 8)
    for first in range(0, on_host, size)
    if size <= on_host
]


# ------------------------------------------------------------------------------------------------------------ the pin


def by_product(pin: Pin) -> dict[str, str]:
    return {name: value for name, value in TOLD.items() if name not in pin.unset} | pin.set


@pytest.mark.parametrize(("slot", "on_host"), SHAPES)
@pytest.mark.parametrize("multi_host", [False, True])
def test_a_person_s_chips_are_pinned_as_a_run_s(slot: tuple[int, ...], on_host: int, multi_host: bool) -> None:
    log = Path("/home/ada/runs/one")
    expected = by_product(pin_to_chips(slot, on_host, log, TOLD["LIBTPU_INIT_ARGS"], multi_host=multi_host))
    assert on_chip.pinned(TOLD, slot, on_host, log, multi_host=multi_host) == expected


def test_a_shell_that_is_pinned_already_does_not_have_the_port_twice() -> None:
    once = on_chip.pinned(TOLD, (1,), 4, Path("/x"), multi_host=False)
    assert on_chip.pinned({**TOLD, **once}, (1,), 4, Path("/x"), multi_host=False) == once
    other = on_chip.pinned({**TOLD, **once}, (2,), 4, Path("/x"), multi_host=False)
    assert other["LIBTPU_INIT_ARGS"] == f"{once['LIBTPU_INIT_ARGS']} --runtime_metric_service_port=8433"


def test_on_the_cpu_a_person_s_command_is_pinned_as_a_run_s() -> None:
    assert on_chip.pinned(TOLD, (), 4, Path("/x"), multi_host=False) == by_product(pin_to_cpu())


# ----------------------------------------------------------------------------------------------------------- the seat


def test_a_command_runs_on_the_person_s_seat_and_is_written_down(desk: Desk) -> None:
    desk.sit({"grace": [0], "ada": [2]})
    told = desk.on_chip("--", "env", env={"TPU_PROCESS_PORT": "1"})
    assert (told.returncode, told.stderr) == (0, "")
    env = {name: value for name, _, value in (line.partition("=") for line in told.stdout.splitlines())}
    (run,) = desk.runs()
    assert re.fullmatch(r"ada-\d{8}-\d{6}", run)
    assert env["TPU_VISIBLE_CHIPS"] == env["TPU_VISIBLE_DEVICES"] == "2"
    assert (env["TPUFLEET_RUN_ID"], env["TPUFLEET_ATTEMPT"], env["PYTHONUNBUFFERED"]) == (run, "1", "1")
    assert env["TPUFLEET_RUN_DIR"] == env["TPU_LOG_DIR"] == str(desk.home / "runs" / run)
    assert "TPU_PROCESS_PORT" not in env
    written = desk.run(run)
    times = [written.pop("started"), written.pop("ended")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(at)) for at in times)
    expected = {"id": run, "person": "ada", "chip": 2, "chips": [2], "command": ["env"], "exit_code": 0}
    assert written == expected
    assert desk.states() == ["seat", "free", "seat", "free"]


def test_a_whole_host_is_taken_at_once_and_a_worker_of_a_larger_slice_waits_for_no_other(desk: Desk) -> None:
    desk.sit({"ada": [0, 1, 2, 3]}, hosts=["tpu-0-w0", "tpu-0-w1", "other-w0"])
    with desk.busy("--", "sh", "-c", "env > told; exec sleep 600") as process:
        told = wait_until(lambda: read(desk.home / "told"), "the environment").splitlines()
        assert {"TPU_VISIBLE_CHIPS=0,1,2,3", "TPU_HOST_BOUNDS=1,1,1", "WORKER_ID=0"} <= set(told)
        assert desk.states() == ["person"] * 4
        process.terminate()
    desk.sit({"ada": [0, 1, 2, 3]}, hosts=["tpu-0-w0", "other-w0"])
    assert "TPU_SKIP_MDS_QUERY" not in desk.on_chip("--", "env").stdout
    assert "TPU_VISIBLE_CHIPS=1\n" in desk.on_chip("1", "--", "env").stdout


def test_if_one_chip_of_a_whole_host_is_busy_none_is_taken(desk: Desk) -> None:
    desk.sit({"ada": [0, 1, 2, 3]})
    with desk.busy("2", "--", *SLEEP) as process:
        refused = desk.on_chip("--", "true")
        assert (refused.returncode, "chip 2 is busy: ada, sleep 600" in refused.stderr) == (75, True)
        assert desk.states() == ["seat", "seat", "person", "seat"]
        process.terminate()


def test_somebody_else_s_seat_is_refused_with_their_name(desk: Desk) -> None:
    desk.sit({"ada": [0], "grace": [1]})
    refused = desk.on_chip("1", "--", "true")
    assert (refused.returncode, "chip 1 is grace's seat" in refused.stderr) == (77, True)
    assert desk.on_chip("1", "--wait", "--", "true").returncode == 77  # waiting would not make it theirs
    assert desk.runs() == []
    desk.sit({name: [chip] for chip, name in enumerate(("grace", "linus", "alan", "edsger"))})
    refused = desk.on_chip("--", "true")
    assert (refused.returncode, "every chip here is somebody else's seat" in refused.stderr) == (77, True)


def test_who_has_no_seat_gets_the_lowest_free_chip_that_is_nobody_s(desk: Desk) -> None:
    desk.sit({"ada": [0], "grace": [2]})
    with desk.busy("--", *SLEEP, user="bob") as first, desk.busy("--", *SLEEP, user="eve") as second:
        assert [chip["who"] for chip in desk.chips()] == [None, "bob", None, "eve"]
        refused = desk.on_chip("--", "true", user="carol")
        assert refused.returncode == 75
        assert re.search("chip 1 is busy: bob, sleep 600, .*; chip 3 is busy: eve, sleep 600", refused.stderr)
        first.terminate()
        second.terminate()
    assert desk.states() == ["seat", "free", "seat", "free"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"people": 7}', '{"people": [{"name": "ada"}], "hosts": []}', "\0"])
def test_a_list_of_people_that_cannot_be_read_keeps_nobody_from_a_chip(desk: Desk, text: str) -> None:
    (desk.base / "people.json").write_text(text)
    assert "TPU_VISIBLE_CHIPS=0\n" in desk.on_chip("--", "env").stdout
    (desk.base / "people.json").unlink()
    assert desk.on_chip("--", "true").returncode == 0
    assert desk.states() == ["free"] * 4


def test_a_seat_that_the_host_does_not_have_any_more_is_said(desk: Desk) -> None:
    desk.sit({"ada": [3]})
    desk.device(3).unlink()
    refused = desk.on_chip("--", "true")
    assert (refused.returncode, "your seat, chip 3, isn't what this host has now" in refused.stderr) == (1, True)


# ----------------------------------------------------------------------------------------------------------- the lease


def test_a_busy_chip_is_said_at_once_with_who_holds_it_since_when_and_what(desk: Desk) -> None:
    desk.sit({"ada": [0]})
    with desk.busy("--", "sh", "-c", ": '\033[2J\u202e'; exec sleep 600") as process:
        started = time.monotonic()
        refused = desk.on_chip("--", "true")
        assert time.monotonic() - started < 5  # 0.2 s on an idle machine
        assert refused.returncode == 75
        assert re.search(r"chip 0 is busy: ada, sh -c .*sleep 600, pid \d+, since \d\d:\d\d UTC\. ", refused.stderr)
        assert not re.search("[\033\u202e]", refused.stderr)
        process.terminate()


def test_of_many_who_want_a_chip_at_the_same_time_one_gets_it(desk: Desk) -> None:
    for _ in range(3):
        crowd = [desk.start("on-chip", "1", "--", *SLEEP) for _ in range(6)]
        wait_until(lambda crowd=crowd: sum(one.poll() is not None for one in crowd) == 5, "all but one are refused")
        (winner,) = (one for one in crowd if one.poll() is None)
        winner.terminate()
        assert sorted(ended(one)[0] for one in crowd) == [75] * 5 + [128 + signal.SIGTERM]


def test_who_waits_is_told_for_whom_and_gets_the_chip_when_it_is_free(desk: Desk) -> None:
    with desk.busy("1", "--", *SLEEP) as holder:
        waiting = desk.start("on-chip", "1", "--wait", "--", "echo", "mine", user="bob")
        assert waiting.stderr
        assert "chip 1 is busy: ada" in waiting.stderr.readline()
        assert waiting.poll() is None
        holder.terminate()
    assert waiting.communicate(timeout=30) == ("mine\n", "")


def test_waiting_is_left_quietly(desk: Desk) -> None:
    with desk.busy("1", "--", *SLEEP) as holder:
        waiting = desk.start("on-chip", "1", "--wait", "--", "true")
        assert waiting.stderr
        assert waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        assert ended(waiting) == (-signal.SIGINT, "")
        holder.terminate()
    assert len(desk.runs()) == 1


def test_when_on_chip_is_killed_its_command_keeps_the_chip_until_it_ends(desk: Desk) -> None:
    with desk.busy("1", "--", *SLEEP) as holder:
        (run,) = desk.runs()
        (command,) = desk.of_run(run)
        holder.kill()
    (chip,) = (chip for chip in desk.chips() if chip["state"] != "free")
    assert (chip["chip"], chip["state"], chip["who"], chip["pid"]) == (1, "person", "ada", command)
    refused = desk.on_chip("1", "--", "true")
    assert (refused.returncode, "ada, sleep 600" in refused.stderr) == (75, True)
    kill(command)
    wait_until(lambda: not alive(command), "the command is dead")
    assert desk.on_chip("1", "--", "true").returncode == 0
    assert (desk.run(run)["ended"], desk.run(run)["exit_code"]) == (None, None)


KEEPS_LEASE = "sleep 600 & exit 3"
CLOSES_LEASE = f'{shlex.quote(PYTHON)} -c \'import subprocess; subprocess.Popen(["sleep", "600"])\'; exit 3'


@pytest.mark.parametrize("script", [KEEPS_LEASE, CLOSES_LEASE])
def test_what_a_command_leaves_behind_keeps_the_chip(desk: Desk, script: str) -> None:
    silent = f"exec </dev/null >/dev/null 2>&1; {script}"
    left = desk.on_chip("1", "--", "sh", "-c", silent)
    assert (left.returncode, "chip 1 stays taken until" in left.stderr) == (3, True)
    (run,) = desk.runs()
    assert desk.run(run)["exit_code"] == 3
    (child,) = desk.of_run(run)
    assert desk.on_chip("1", "--", "true").returncode == 75
    assert desk.states()[1] == "person"
    kill(child)
    assert desk.on_chip("1", "--wait", "--", "true").returncode == 0


def test_a_device_that_is_open_without_a_lease_is_busy(desk: Desk) -> None:
    with desk.device(1).open(), desk.device(0).open():
        refused = desk.on_chip("1", "--", "true")
        assert refused.returncode == 75
        assert f"(without on-chip), {sys.executable}" in refused.stderr
        assert "TPU_VISIBLE_CHIPS=2\n" in desk.on_chip("--", "env").stdout
        assert desk.states() == ["busy", "busy", "free", "free"]
    assert desk.on_chip("1", "--", "true").returncode == 0


def test_the_product_sees_people_and_people_see_the_product_s_runs(desk: Desk) -> None:
    places = Places(desk.root)
    with desk.busy("1", "--", *SLEEP) as process:
        held = holders.look(places, [])[1]
        assert (held.state, held.person, held.command) == ("person", "ada", " ".join(SLEEP))
        assert held.pid != process.pid, "the command's, not on-chip's"
        assert product_chips.take_lease(places, 1, "gpt") is None
        process.terminate()
    fd = product_chips.take_lease(places, 1, "gpt-lr3")
    assert fd is not None
    refused = desk.on_chip("1", "--", "true")
    assert (refused.returncode, "chip 1 is busy: run gpt-lr3" in refused.stderr) == (75, True)
    os.close(fd)
    assert holders.look(places, [])[1].state == "free"


def test_a_host_without_leases_says_who_can_mend_it(desk: Desk) -> None:
    desk.lease(0).unlink()
    refused = desk.on_chip("0", "--", "true")
    assert (refused.returncode, "isn't ready for on-chip" in refused.stderr) == (1, True)
