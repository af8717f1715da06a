"""`tpufleet board`: the links it prints, what it refuses, and people who come to a rehearsal fleet by it."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.board.rig import Site, words_of
from tests.cli.test_people import Desk
from tests.project import Project, until
from tests.unit.hostile_people import ed25519
from tpufleet.board.opening import door, invitation, place
from tpufleet.board.signup import Invitation
from tpufleet.errors import UsageError

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there


@contextmanager
def serving(project: Project, *words: str, signed: bool = True) -> Generator[tuple[dict[str, Any], Site]]:
    """The board as a command: its links, and the site. Ctrl-C must end it, with exit code 0."""
    options = ["--sign-up"] if signed else []
    with project.popen("--json", "board", *options, "--listen", "127.0.0.1:0", *words) as process:
        assert process.stdout
        try:
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            links = json.loads(line)
            site = Site(int(re.findall(r":(\d+)/", links["host"])[0]))
            until(lambda: answers(site), "the board to answer")
            yield links, site
        finally:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert "the board is closed" in err
        assert "Traceback" not in err
        links["said"] = err


def answers(site: Site) -> bool:
    try:
        return site.get("/icon.svg").status == 200
    except ConnectionError:
        return False


def test_people_sign_up_to_a_fleet_and_get_their_cards(fleet: Project) -> None:
    with serving(fleet, "--approve") as (links, site):
        assert set(links) == {"schema", "board", "sign_up", "code", "until", "host"}
        names = ["ada", "grace", "linus"]
        tokens = [site.join(name, ed25519(n), code=links["code"]).token for n, name in enumerate(names)]
        assert not (fleet.directory / "people.yaml").exists(), "nobody is in the list before the host's word"
        host = Site(site.port)
        assert host.get(links["host"].partition(f":{site.port}")[2]).status == 200
        host.post("/host", [*(("name", name) for name in names[:2]), ("word", "welcome")])
        for token, name in zip(tokens[:2], names, strict=False):
            until(lambda t=token, n=name: f"{n}@127." in site.get(f"/card/{t}").text, f"the card of {name}", 60)
        assert "linus" not in (fleet.directory / "people.yaml").read_text()
        text = until(lambda: t if "have seats" in (t := words_of(site.get("/").text)) else None, "the look")
        assert "8 chips" in text
        assert "ada idle" in text
    assert "linus has signed up: waits for your word" in links["said"]
    assert "ada has a seat and a card" in links["said"]
    assert stat_mode(fleet.directory / ".tpufleet/signups.json") == 0o600

    card = fleet.json("people", "card", "ada")["cards"][0]["text"]
    with serving(fleet) as (again, site):
        assert again["code"] == links["code"], "the invitation goes on"
        page = until(lambda: t if "Log in" in (t := site.get(f"/card/{tokens[0]}").text) else None, "the card", 60)
        line = next(line.strip() for line in card.splitlines() if line.strip().startswith("ssh -i"))
        assert line in page, "the same card as on paper"
        fleet.run("people", "revoke", "ada")
        assert "It is over" in site.get(f"/card/{tokens[0]}").text
        assert site.join("ada", ed25519(9), code=links["code"]).status == 422, "a name that leads to somebody's home"


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_one_board_at_a_time_and_one_on_an_address(project: Project, tmp_path: Path) -> None:
    with serving(project, signed=False) as (links, site):
        assert (links["sign_up"], links["code"], links["until"]) == (None, None, None)
        assert site.get("/join").status == 404
        second = project.run("board", "--listen", "127.0.0.1:0", ok=False)
        assert second.exit_code == 8
        assert "another tpufleet command" in second.stderr
        other = Project.make(tmp_path / "other")
        taken = other.run("board", "--listen", f"127.0.0.1:{site.port}", ok=False)
        assert taken.exit_code == 2
        assert "can't listen" in taken.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--approve"], "about the sign-up"),
        (["--code", "abcdef"], "about the sign-up"),
        (["--for", "3h"], "about the sign-up"),
        (["--sign-up", "--for", "soon"], "--for"),
        (["--sign-up", "--for", "0s"], "--for"),
        (["--sign-up", "--for", "9999999d", "--listen", "127.0.0.1:0"], "30 days"),
        (["--sign-up", "--code", "abc", "--listen", "127.0.0.1:0"], "6 to 32"),
        (["--listen", "8042"], "an address and a port"),
        (["--listen", "127.0.0.1:99999"], "an address and a port"),
        (["--listen", "127.0.0.1:0", "--url", "http://["], "--url"),
        (["--listen", "127.0.0.1:0", "--url", "ftp://x"], "--url"),
        (["--listen", "127.0.0.1:0", "--url", "https://x/y"], "--url"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(tmp_path: Path, words: list[str], says: str) -> None:
    done = Desk(Project.make(tmp_path / "project").directory).run("board", *words, ok=False)
    assert done.exit_code == 2, done
    assert says in done.stderr
    assert "→" in done.stderr


def test_people_in_the_fleet_file_itself_are_only_changed_by_hand(tmp_path: Path) -> None:
    project = Desk(Project.make(tmp_path / "project").directory)
    file = project.directory / "tpufleet.yaml"
    file.write_text(f"{file.read_text()}people:\n  - {{name: ada, key: {ed25519()}}}\n")
    done = project.run("board", "--sign-up", "--listen", "127.0.0.1:0", ok=False)
    assert done.exit_code == 2
    assert "people.yaml" in done.stderr


def test_an_installation_without_the_extra_is_told_what_to_install(project: Project, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'uvicorn' else find(name, *a)\n"
    )
    project.env["PYTHONPATH"] = f"{tmp_path}:{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"
    done = project.run("board", ok=False)
    assert done.exit_code == 2
    assert "pip install 'tpufleet[board]'" in done.stderr


# -------------------------------------------------------------------------------------------------- how it is opened


@pytest.mark.parametrize(
    ("listen", "found"),
    [
        ("127.0.0.1:8042", ("127.0.0.1", 8042)),
        ("[::]:0", ("::", 0)),
        (f"{EVERYWHERE}:80", (EVERYWHERE, 80)),
        ("my-laptop.local:8042", ("my-laptop.local", 8042)),
    ],
)
def test_places_to_listen_at(listen: str, found: tuple[str, int]) -> None:
    assert place(listen) == found


@pytest.mark.parametrize("listen", ["", ":80", "a:b", "::1:80", "127.0.0.1", "a b:80", "127.0.0.1:-1", "x\n:80"])
def test_places_that_are_none(listen: str) -> None:
    with pytest.raises(UsageError):
        place(listen)


@pytest.mark.parametrize(
    ("bind", "url", "open_to_all"),
    [
        ("127.0.0.1", None, True),
        (EVERYWHERE, None, False),
        ("127.0.0.1", "https://board.example.org", False),
        ("127.0.0.1", "http://192.0.2.1:8042", False),
        ("127.0.0.1", "http://localhost:9000/", True),
    ],
)
def test_only_what_nobody_else_can_reach_is_open_without_the_viewers_link(
    bind: str, url: str | None, open_to_all: bool
) -> None:
    opened = door(bind, (bind, 8042), url, "viewer")
    assert (opened.viewer is None) == open_to_all
    assert opened.board.endswith("/" if open_to_all else "/view/viewer")
    assert opened.secure == bool(url and url.startswith("https"))
    assert EVERYWHERE not in opened.url
    assert opened.host not in (opened.board, opened.invitation("X"))


def test_an_invitation_goes_on_until_its_time_is_over_or_another_code_is_wanted() -> None:
    now = datetime.now(UTC)
    kept = Invitation("KX7M-W2QD", now + timedelta(hours=1))
    over = Invitation("KX7M-W2QD", now - timedelta(hours=1))
    assert invitation(kept, None, None) == kept
    assert invitation(kept, None, 60).code == kept.code
    assert invitation(kept, None, 60).until < kept.until
    assert invitation(kept, "our-evening", None).code == "our-evening"
    assert invitation(over, None, None).code != over.code
    assert timedelta(hours=2.9) < invitation(None, None, None).until - now <= timedelta(hours=3)
