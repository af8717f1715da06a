"""What comes home: log, manifest, fetch; with jobs that leave hostile names behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from .harness import Host
from .test_checkpoints import write_checkpoint
from .test_runs import WAITS, let_go, wait_for_start


@pytest.fixture
def ended(host: Host) -> Host:
    """A host with the ended run "gpt", whose log is "hello"."""
    host.enqueue(host.spec("gpt", "print('hello')", artifacts=["out/**", "*.svg"]))
    host.wait_for("gpt", "done")
    return host


def fetch(host: Host, *pieces: tuple[str, int, int], run: str = "gpt") -> list[tuple[dict[str, Any], bytes]]:
    """The answers of fetch, taken apart."""
    request = [{"run": run, "path": path, "offset": offset, "length": length} for path, offset, length in pieces]
    code, out = host.raw("fetch", {"files": request})
    assert code == 0, out
    answers: list[tuple[dict[str, Any], bytes]] = []
    while out:
        line, _, out = out.partition(b"\n")
        header = json.loads(line)
        length = max(0, header["length"])
        answers.append((header, out[:length]))
        out = out[length:]
    return answers


def only(host: Host) -> dict[str, Any]:
    (found,) = host.call("manifest", runs=["gpt"])["runs"]
    return found


def test_a_log_is_given_from_an_offset_or_from_its_end(ended: Host) -> None:
    assert ended.raw("log", {"run": "gpt", "offset": 0}) == (0, b"hello\n")
    assert ended.raw("log", {"run": "gpt", "offset": 3, "follow": True}) == (0, b"lo\n")
    assert ended.raw("log", {"run": "gpt", "offset": -2}) == (0, b"o\n")
    assert ended.raw("log", {"run": "gpt", "offset": -99}) == (0, b"hello\n")
    assert ended.raw("log", {"run": "gpt", "offset": 99}) == (0, b"")


def test_following_goes_on_until_the_run_has_ended(host: Host) -> None:
    host.enqueue(
        host.spec("gpt", "print('first', flush=True)\n" + WAITS.replace("sys.exit", "print('last')\nsys.exit"))
    )
    with host.start("log") as follower:
        assert follower.stdin
        assert follower.stdout
        follower.stdin.write(b'{"run": "gpt", "offset": 0, "follow": true}\n')
        follower.stdin.flush()
        assert follower.stdout.readline() == b"first\n"
        let_go(host, "gpt")
        assert follower.stdout.read() == b"last\n"
        assert follower.wait(10) == 0


def test_following_ends_when_the_client_goes_away(host: Host) -> None:
    host.enqueue(host.spec("gpt", WAITS))
    wait_for_start(host, "gpt")
    with host.start("log") as follower:
        assert follower.stdin
        follower.stdin.write(b'{"run": "gpt", "offset": 0, "follow": true}\n')
        follower.stdin.close()
        assert follower.wait(10) == 0


def test_the_manifest_lists_what_is_worth_bringing_home(ended: Host) -> None:
    top = ended.run_dir("gpt")
    (top / "out/deep").mkdir(parents=True)
    (top / "out/deep/a.bin").write_bytes(b"abc")
    (top / "curve.svg").write_text("x")
    (top / "scratch.tmp").write_text("x")
    whole = write_checkpoint(top / "checkpoints", 100)
    (write_checkpoint(top / "checkpoints", 200) / "model.bin").write_bytes(b"flipped!")
    found = only(ended)
    assert found["state"]["state"] == "done"
    assert [(file["path"], file["size"]) for file in found["files"]] == [
        ("curve.svg", 1),
        ("log.txt", 6),
        ("out/deep/a.bin", 3),
    ]
    assert found["files"][0]["mtime_ns"] == (top / "curve.svg").stat().st_mtime_ns
    first, second = found["checkpoints"]
    assert (first["name"], first["step"], first["verified"]) == ("step-00000100", 100, True)
    assert (second["verified"], second["problem"]) == (False, "model.bin has another content")
    for record in first["files"]:
        assert record["sha256"] == hashlib.sha256((whole / record["path"]).read_bytes()).hexdigest()


def test_the_manifest_tells_on_demand_what_is_in_the_files_and_always_lists_the_changes_by_hand(ended: Host) -> None:
    (ended.run_dir("gpt") / "changes.diff").write_text("+print()\n")
    assert [file["path"] for file in only(ended)["files"]] == ["changes.diff", "log.txt"]
    assert all("sha256" not in file for file in only(ended)["files"])
    (found,) = ended.call("manifest", runs=["gpt"], digests=True)["runs"]
    digests = {file["path"]: file["sha256"] for file in found["files"]}
    assert digests["log.txt"] == hashlib.sha256(b"hello\n").hexdigest()
    assert digests["changes.diff"] == hashlib.sha256(b"+print()\n").hexdigest()


def test_a_changed_checkpoint_is_noticed_though_hashes_are_remembered(ended: Host) -> None:
    path = write_checkpoint(ended.run_dir("gpt") / "checkpoints", 100)
    assert only(ended)["checkpoints"][0]["verified"]
    remembered = ended.control("gpt") / "verified.json"
    before = remembered.stat()
    assert only(ended)["checkpoints"][0]["verified"]
    assert remembered.stat().st_ino == before.st_ino  # nothing was hashed again
    (path / "model.bin").write_bytes(b"flipped!")
    assert not only(ended)["checkpoints"][0]["verified"]


def test_hostile_names_are_neither_listed_nor_sent(ended: Host, tmp_path: Path) -> None:
    top = ended.run_dir("gpt")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (top / "out").mkdir()
    (top / "out/link").symlink_to(secret)
    (top / "out/new\nline").write_text("x")
    (top / "out/esc\x1b[2J").write_text("x")
    (top / "out/.hidden").write_text("x")
    (top / "linked").symlink_to(tmp_path)
    (top / "out/up").symlink_to("..")
    os.mkfifo(top / "out/pipe")
    (top / "metrics.jsonl").symlink_to(secret)
    assert [file["path"] for file in only(ended)["files"]] == ["log.txt"]
    hostile = (
        "out/link", "out/new\nline", "../gpt/log.txt", "out/../log.txt", str(secret), "linked/secret", "out/.hidden",
        "out/pipe", "out", "", ".", "metrics.jsonl", "out/up/log.txt", "../../control/gpt/state.json", "log.txt\0",
    )  # fmt: skip
    answers = fetch(ended, *((path, 0, 100) for path in hostile))
    assert [(header["path"], header["length"], data) for header, data in answers] == [
        (path, -1, b"") for path in hostile
    ]


def test_fetch_sends_the_parts_it_announces_in_order(ended: Host) -> None:
    data = bytes(range(256)) * 20_000
    (ended.run_dir("gpt") / "big.bin").write_bytes(data)
    answers = fetch(ended, ("big.bin", 1000, 4_000_000), ("log.txt", 0, 6), ("big.bin", 5_119_999, 50), ("no", 0, 1))
    assert [header["length"] for header, _ in answers] == [4_000_000, 6, 1, -1]
    assert answers[0][1] == data[1000:4_001_000]
    assert answers[1][1] == b"hello\n"
    assert answers[2][1] == b"\xff"


def test_a_checkpoint_that_the_job_removes_while_it_is_sent_arrives(ended: Host) -> None:
    """More comes before it than a pipe holds, so it is removed long before its turn."""
    top = ended.run_dir("gpt")
    (top / "out").mkdir()
    (top / "out/large.bin").write_bytes(bytes(4 << 20))
    whole = write_checkpoint(top / "checkpoints", 100)
    wanted = [("out/large.bin", 4 << 20), ("checkpoints/step-00000100/model.bin", 8)]
    request = [{"run": "gpt", "path": path, "offset": 0, "length": length} for path, length in wanted]
    with ended.start("fetch") as sender:
        assert sender.stdin
        assert sender.stdout
        sender.stdin.write(json.dumps({"files": request}).encode())
        sender.stdin.close()
        assert json.loads(sender.stdout.readline())["path"] == "out/large.bin"
        shutil.rmtree(whole)
        assert sender.stdout.read().endswith(b'"length": 8}\nweights!')
        assert sender.wait(10) == 0


@pytest.mark.parametrize("run", ["../x", ".", "", "a/b", "A", "x" * 200, "a\n"])
def test_a_run_s_id_is_never_a_path(host: Host, run: str) -> None:
    for verb, request in (
        ("log", {"run": run}),
        ("stop", {"runs": [run]}),
        ("manifest", {"runs": [run]}),
        ("fetch", {"files": [{"run": run, "path": "log.txt", "offset": 0, "length": 1}]}),
        ("enqueue", {"runs": [host.spec(run)]}),
    ):
        code, out = host.raw(verb, request)
        assert (code, json.loads(out)["error"]["kind"]) == (1, "bad-request")


def test_runs_that_are_not_there_are_said_to_be_not_there(host: Host) -> None:
    for verb, request in (("log", {"run": "no"}), ("stop", {"runs": ["no"]}), ("manifest", {"runs": ["no"]})):
        assert host.error(verb, **request)["kind"] == "not-found"
    assert host.call("manifest", runs=None) == {"runs": []}
