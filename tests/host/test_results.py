"""What runs wrote comes once, in whole lines, also while files grow and are replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.host.harness import Host, wait_until
from tpufleet.host import results as verb
from tpufleet.host.errors import HostError
from tpufleet.host.places import Places
from tpufleet.host.results import results

RUN = "gpt-seed0"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A host on which one run has a directory."""
    places = Places(tmp_path)
    places.run(RUN).dir.mkdir(parents=True)
    return places


class Reader:
    """Reads one file again and again, as a board does."""

    def __init__(self, places: Places, name: str = "metrics") -> None:
        self.places = places
        self.name = name
        self.path = places.run(RUN).dir / f"{name}.jsonl"
        self.token: str | None = None
        self.more = False

    def read(self) -> tuple[str, bool] | None:
        """What is new and whether it is anew; None for nothing."""
        tokens = dict.fromkeys(verb.FILES) | {self.name: self.token}
        told = results(self.places, {"runs": {RUN: tokens}}).get(RUN, {}).get(self.name)
        if told is None:
            return None
        self.token, self.more = told["token"], told["more"]
        return told["text"], told["anew"]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_come_once_and_halves_not_at_all(places: Places) -> None:
    reader = Reader(places)
    assert reader.read() is None, "there is no file yet"
    append(reader.path, '{"step": 1}\n{"st')
    assert reader.read() == ('{"step": 1}\n', True)
    assert reader.read() is None
    append(reader.path, 'ep": 2}\n')
    assert reader.read() == ('{"step": 2}\n', False)
    assert reader.read() is None


@pytest.mark.parametrize("how", ["renamed", "written over", "shorter", "longer, on the same inode"])
def test_a_file_that_was_written_anew_is_read_from_its_beginning(places: Places, how: str) -> None:
    reader = Reader(places)
    append(reader.path, "one\ntwo\nthree\n")
    assert reader.read() == ("one\ntwo\nthree\n", True)
    new = {"shorter": "one\n"}.get(how, "one\ntwo\nfour, and much more than before\n")
    if how == "renamed":
        aside = reader.path.with_name("aside")
        aside.write_text(new)
        aside.rename(reader.path)
    else:
        reader.path.write_text(new)
    assert reader.read() == (new, True)
    assert reader.read() is None


def test_a_file_that_is_gone_voids_what_was_read(places: Places) -> None:
    reader = Reader(places)
    append(reader.path, "one\n")
    reader.read()
    reader.path.unlink()
    assert reader.read() == ("", True)
    assert reader.read() is None


def test_of_completions_that_nobody_has_read_the_newest_come(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "TAIL", 100)
    reader = Reader(places, "completions")
    lines = [f'{{"step": {n:06}}}\n' for n in range(100)]
    append(reader.path, "".join(lines))
    text, anew = reader.read() or ("", False)
    assert anew
    assert 0 < len(text) <= 100
    assert "".join(lines).endswith(text)
    assert text.startswith("{")
    append(reader.path, "new\n")
    assert reader.read() == ("new\n", False)


def test_an_answer_has_an_end_and_the_rest_comes_later(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "MOST", 3000)
    monkeypatch.setattr(verb, "LEAST", 500)
    runs = [f"gpt-seed{n}" for n in range(20)]
    lines = "".join(f'{{"step": {n:04}}}\n' for n in range(100))
    for run in runs:
        places.run(run).dir.mkdir(exist_ok=True)
        (places.run(run).dir / "metrics.jsonl").write_text(lines)
    tokens: dict[str, Any] = {run: {} for run in runs}
    got = dict.fromkeys(runs, "")
    looks = 0
    while tokens:
        told = results(places, {"runs": tokens})
        looks += 1
        assert looks < 100
        assert sum(len(file["text"]) for files in told.values() for file in files.values()) <= 3000
        for run, files in told.items():
            text = files["metrics"]["text"]
            assert not text or text.endswith("\n")
            got[run] += text
            tokens[run] = {"metrics": files["metrics"]["token"]}
            if not files["metrics"]["more"]:
                del tokens[run]
    assert set(got.values()) == {lines}
    assert looks > 5


def test_a_line_without_end_holds_up_nothing(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "MOST", 1000)
    monkeypatch.setattr(verb, "LEAST", 500)
    reader = Reader(places)
    append(reader.path, "x" * 5000 + "\n" + '{"step": 1}\n')
    told = []
    while (found := reader.read()) is not None:
        told.append(found[0])
        assert len(told) < 50
    assert "".join(told).endswith('{"step": 1}\n')


def test_links_pipes_and_directories_are_no_files(places: Places, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET\n")
    folder = places.run(RUN).dir
    (folder / "metrics.jsonl").symlink_to(secret)
    os.mkfifo(folder / "completions.jsonl")  # reading it would hang for ever
    assert results(places, {"runs": {RUN: {}}}) == {}


@pytest.mark.parametrize("token", ["", "1:2", "a:b:c", "1:2:3:4", "-1:0:0", 7, "9" * 30 + ":0:0", f"1:{10**19}:0"])
def test_a_token_that_makes_no_sense_is_none(places: Places, token: object) -> None:
    path = places.run(RUN).dir / "metrics.jsonl"
    append(path, "one\n")
    told = results(places, {"runs": {RUN: {"metrics": token}}})
    assert told[RUN]["metrics"]["text"] == "one\n"
    assert told[RUN]["metrics"]["anew"]


@pytest.mark.parametrize("runs", [["gpt"], "gpt", {"../../etc": {}}, {"": {}}])
def test_what_is_no_list_of_runs_is_refused(places: Places, runs: object) -> None:
    with pytest.raises(HostError):
        results(places, {"runs": runs})


def test_bytes_that_are_no_text_are_told_as_such(places: Places) -> None:
    reader = Reader(places)
    reader.path.write_bytes(b"\xff\xfe{\n")
    assert reader.read() == ("\ufffd\ufffd{\n", True)


def test_one_question_tells_all_that_a_board_shows(host: Host) -> None:
    script = "import os, pathlib; p = pathlib.Path(os.environ['TPUFLEET_RUN_DIR']); p.joinpath('metrics.jsonl')"
    host.enqueue(
        host.spec("mine", script + """.write_text('{"step": 5, "loss": 2.5}\\n')"""),
        host.spec("theirs", script + ".write_text('x\\\\n')", fleet="other"),
    )
    for run in ("mine", "theirs"):
        host.wait_for(run, "done")
    answer = host.call("look", fleet="sherlock", runs=None, people=False)
    assert {run["id"] for run in answer["probe"]["runs"]} == {"mine", "theirs"}
    assert json.loads(answer["results"]["mine"]["metrics"]["text"]) == {"step": 5, "loss": 2.5}
    assert "theirs" not in answer["results"], "it is another fleet's"
    assert "people" not in answer
    assert host.call("look", fleet="sherlock", runs={}, people=True)["people"] == {"runs": []}
    assert host.error("look", fleet="../x", runs=None)["kind"] == "bad-request"
    wait_until(lambda: host.worker() is None, "the worker's end")
