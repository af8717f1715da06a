"""A log that is kept below its limit: what stays, who reads on in it, and a kill in the middle of a cut."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given, strategies as st

from tpufleet.host import logfile, metrics
from tpufleet.host.logfile import Cut
from tpufleet.host.places import RunPlaces

from .harness import Host, wait_until

LIMIT = 8192
NUMBERS = {"loss": r"^line (\d+)$"}


def say(run: RunPlaces, first: int, last: int) -> None:
    with run.log.open("a") as log:
        log.writelines(f"line {number}\n" for number in range(first, last))


def lines(run: RunPlaces) -> list[str]:
    return run.log.read_text().splitlines()


def test_the_first_and_the_last_lines_stay_with_a_line_that_says_what_is_gone(run: RunPlaces) -> None:
    say(run, 0, 2000)
    size = run.log.stat().st_size
    metrics.scan(run, {}, LIMIT)
    assert run.log.stat().st_size <= LIMIT
    said = lines(run)
    (note,) = [line for line in said if line.startswith("tpufleet: ")]
    assert (said[0], said[-1]) == ("line 0", "line 1999")
    assert all(line == note or line.startswith("line ") for line in said)
    assert note.startswith(f"tpufleet: {size - run.log.stat().st_size + len(note) + 1} bytes of this log were cut out")


def test_cut_again_and_again_it_says_so_once_and_numbers_are_read_once_each(run: RunPlaces) -> None:
    for start in range(0, 10_000, 500):
        say(run, start, start + 500)
        metrics.scan(run, NUMBERS, LIMIT)
        assert run.log.stat().st_size <= LIMIT
    assert sum(line.startswith("tpufleet: ") for line in lines(run)) == 1
    found = [json.loads(line)["loss"] for line in run.metrics.read_text().splitlines()]
    assert found == list(range(10_000))
    assert logfile.end_of(run) == sum(len(f"line {number}\n") for number in range(10_000))


def test_what_was_not_read_yet_is_not_cut(run: RunPlaces) -> None:
    say(run, 0, 1000)
    metrics.scan(run, NUMBERS, LIMIT)
    assert len(run.metrics.read_text().splitlines()) == 1000


def test_a_log_that_its_job_began_anew_is_a_new_log(run: RunPlaces) -> None:
    say(run, 0, 2000)
    metrics.scan(run, {}, LIMIT)
    run.log.write_text("line 1\n")
    metrics.scan(run, NUMBERS, LIMIT)
    assert logfile.cut_of(run) == Cut()
    assert len(run.metrics.read_text().splitlines()) == 1


@pytest.mark.parametrize("copied", [0, 1, 1000, 2048])
def test_a_cut_that_was_killed_is_finished_by_whoever_reads_next(run: RunPlaces, copied: int) -> None:
    say(run, 0, 2000)
    cut = logfile.next_cut(run, LIMIT)
    assert cut
    whole = run.log.read_bytes()
    run.cut.write_text(json.dumps(cut._asdict()))
    with run.log.open("r+b") as log:  # as far as it had come: nothing, a part of the note, a part of the tail
        log.seek(cut.head)
        log.write((b"tpufleet: " * 300)[:copied])
    say(run, 2000, 2010)
    assert logfile.cut_of(run) == cut._replace(before=None, tail=0)
    assert run.log.read_bytes()[: cut.head] == whole[: cut.head]
    assert lines(run)[-11:] == [f"line {number}" for number in range(1999, 2010)]
    assert sum(line.startswith("tpufleet: ") for line in lines(run)) == 1


def test_a_cut_that_was_killed_after_the_end_is_done(run: RunPlaces) -> None:
    say(run, 0, 2000)
    cut = logfile.next_cut(run, LIMIT)
    assert cut
    logfile.shorten(run, cut)
    run.cut.write_text(json.dumps(cut._asdict()))
    before = run.log.read_bytes()
    assert logfile.cut_of(run).before is None
    assert run.log.read_bytes() == before


@given(st.integers(0, 50), st.integers(1, 20), st.integers(0, 1000), st.integers(0, 2000))
def test_offsets_and_positions_belong_together(head: int, note: int, gone: int, offset: int) -> None:
    cut = Cut(head, note if gone else 0, gone)
    position = cut.position(offset)
    if offset < head or offset >= head + gone:
        assert cut.offset(position) == offset or gone == 0 == cut.note
    else:
        assert position == head  # the note stands for what is gone


# Writes a page, waits until it may go on, writes the rest.
PAGES = """
import os, pathlib, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
for number in range(3000):
    print("line", number, flush=True)
    if number == 100:
        while not (run / "go").exists():
            time.sleep(0.01)
while not (run / "end").exists():
    time.sleep(0.01)
print("the end", flush=True)
"""


def test_who_follows_a_log_reads_on_behind_a_cut(host: Host) -> None:
    host.enqueue(host.spec("gpt", PAGES, log_limit=LIMIT))
    with host.start("log") as follower:
        assert follower.stdin
        assert follower.stdout
        follower.stdin.write(json.dumps({"run": "gpt", "follow": True}).encode() + b"\n")
        follower.stdin.flush()
        for number in range(101):
            assert follower.stdout.readline() == f"line {number}\n".encode()
        (host.run_dir("gpt") / "go").touch()
        wait_until((host.control("gpt") / "log.json").exists, "the log to be cut")
        (host.run_dir("gpt") / "end").touch()
        rest = follower.stdout.read().decode().splitlines()
    numbers = [int(line.split()[1]) for line in rest if line.startswith("line ")]
    assert numbers == sorted(set(numbers))
    assert (numbers[-1], rest[-1]) == (2999, "the end")
    assert (host.run_dir("gpt") / "log.txt").stat().st_size <= LIMIT
    (offered,) = host.call("manifest", runs=["gpt"])["runs"]
    assert offered["log_cut"] > 10_000


def test_the_last_bytes_of_a_cut_log_are_its_last(host: Host) -> None:
    host.enqueue(host.spec("gpt", "for n in range(3000): print('line', n)", log_limit=LIMIT))
    host.wait_for("gpt", "done")
    assert host.raw("log", {"run": "gpt", "offset": -10})[1] == b"line 2999\n"
    assert host.raw("log", {"run": "gpt"})[1].decode() == host.log("gpt")
    assert subprocess.run(["tail", "-1", host.run_dir("gpt") / "log.txt"], capture_output=True, check=True).stdout
