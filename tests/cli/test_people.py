"""`tpufleet people`: the list by command, hostile input refused, and cards that fit the fleet."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.test_json import documented
from tests.project import Done, Project
from tests.unit.hostile_people import KEYS, NAMES, OPENSSH_PRIVATE, ed25519, rsa
from tpufleet.__main__ import run as tpufleet
from tpufleet.errors import Unreachable, UsageError
from tpufleet.ops import github


class Desk(Project):
    """A project whose command line runs in this process: quick, for commands that ask neither cloud nor host."""

    def run(self, *words: str, ok: bool = True, timeout: float = 120, given: bytes = b"") -> Done:
        assert timeout
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for name in ("stdout", "stderr")}
        with contextlib.chdir(self.directory), pytest.MonkeyPatch.context() as patch:
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
            for name, value in self.env.items():
                patch.setenv(name, value)
            patch.delenv("TPUFLEET_CONFIG", raising=False)
            exit_code = tpufleet(list(words))
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for stream in streams.values():
            stream.seek(0)
        done = Done(words, exit_code, streams["stdout"].read(), streams["stderr"].read())
        assert not ok or exit_code == 0, done
        return done


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A project whose fleet was never made: the list needs none."""
    project = Project.make(tmp_path / "project", count=2)
    return Desk(project.directory)


def listed(project: Project) -> dict[str, str | None]:
    return {row["name"]: row["seat"] for row in project.json("people", "list")["people"]}


def refused(done: Done, *words: str) -> None:
    """Exit code 2, one sentence, a next step; `Project.run` has looked for tracebacks."""
    assert done.exit_code == 2, done.stderr
    error, *more = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert len(more) == 1
    assert more[0].startswith("  → ")
    assert all(word in done.stderr for word in words), done.stderr
    assert all(line.isprintable() for line in done.stderr.splitlines())


def test_an_evening_at_the_list(desk: Desk) -> None:
    file = desk.directory / "people.yaml"
    (desk.directory / "grace.pub").write_text(f"{ed25519(2)} grace@laptop\n")
    desk.run("people", "add", "ada", f"{ed25519(1)} ada@laptop", "--expires", "8h", "--note", "in front")
    desk.run("people", "add", "grace", "grace.pub")
    assert desk.run("people", "add", "linus", "-", given=ed25519(3).encode("utf-16"))  # as PowerShell writes
    file.write_text("# the evening\n" + file.read_text())
    assert listed(desk) == {"ada": "tpu-0-w0:0", "grace": "tpu-1-w0:0", "linus": "tpu-0-w0:1"}

    moved = desk.run("people", "seat", "grace", "tpu-0:0").stdout
    assert "ada sits at tpu-1-w0:0 now\ngrace sits at tpu-0-w0:0 now\n" in moved
    assert "new card: tpufleet people card ada grace\n" in moved
    desk.run("people", "swap", "ada", "grace")
    assert listed(desk) == {"ada": "tpu-0-w0:0", "grace": "tpu-1-w0:0", "linus": "tpu-0-w0:1"}
    refused(desk.run("people", "seat", "linus", "tpu-1-w0:0", ok=False), "grace does")
    refused(desk.run("people", "seat", "linus", "tpu-7-w0:0", ok=False), "no host tpu-7-w0")

    desk.run("people", "revoke", "ada")
    assert desk.json("people", "list")["revoked"] == ["ada"]
    assert listed(desk) == {"grace": "tpu-1-w0:0", "linus": "tpu-0-w0:1"}  # nobody else moved
    assert file.read_text().startswith("# the evening\n- name: grace\n")
    assert "nothing to do" in desk.run("people", "revoke", "ada").stdout


def test_who_is_moved_for_somebody_else_is_said_by_the_command_that_moves_them(desk: Desk) -> None:
    desk.run("people", "add", "ada", ed25519(1))
    words = ["people", "add", "grace", ed25519(2), "--seat", "tpu-0-w0:0"]
    assert "ada would sit at tpu-1-w0:0\n" in desk.run(*words, "--dry-run").stdout
    done = desk.run(*words).stdout
    assert "ada sits at tpu-1-w0:0 now\nnew card: tpufleet people card ada\n" in done
    assert "sits at" not in desk.run(*words).stdout


def test_what_was_said_of_a_person_is_seen_again(desk: Desk) -> None:
    done = desk.run("people", "add", "ada", ed25519(1), "--expires", "2099-12-01T18:00Z", "--share").stdout
    assert "people.yaml, until 2099-12-01 18:00 UTC\n" in done
    (row,) = desk.json("people", "list")["people"]
    table = desk.run("people", "list").stdout
    assert (row["share"], table.splitlines()[0].split()) == (True, ["NAME", "SEAT", "EXPIRES", "KEY", "SHARE", "NOTE"])
    assert row["fingerprint"][:19] in table
    assert row["fingerprint"][:20] not in table


def test_the_same_again_changes_nothing_and_a_dry_run_writes_nothing(desk: Desk) -> None:
    before = sorted(path.name for path in desk.directory.iterdir())
    assert desk.json("people", "add", "ada", ed25519(), "--dry-run")["changed"]
    assert sorted(path.name for path in desk.directory.iterdir()) == before
    assert desk.json("people", "add", "ada", ed25519())["changed"]
    text = (desk.directory / "people.yaml").read_text()
    assert not desk.json("people", "add", "ada", ed25519())["changed"]
    for words in (["seat", "ada", "tpu-1-w0"], ["revoke", "ada"]):
        assert desk.json("people", *words, "--dry-run")["changed"]
    assert (desk.directory / "people.yaml").read_text() == text
    assert desk.json("people", "list")["revoked"] == []


def test_answers_have_the_fields_that_are_documented(desk: Desk) -> None:
    words = {"people add": ["add", "ada", ed25519()], "people list": ["list"], "people revoke": ["revoke", "ada"]}
    for verb, rest in words.items():
        assert set(desk.json("people", *rest)) == documented(verb), verb


def test_two_who_add_at_once_are_both_there(desk: Desk) -> None:
    both = [desk.popen("people", "add", name, ed25519(index)) for index, name in enumerate(("ada", "grace"))]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert set(listed(desk)) == {"ada", "grace"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ada", KEYS["options: a command"]], "options before a key"),
        (["ada", OPENSSH_PRIVATE], "must now be thrown away"),
        (["ada", rsa(1024)], "1024 bits"),
        (["ada", KEYS["two keys by carriage return"]], "more than one line"),
        (["ada", KEYS["ESC in the comment"]], "invisible"),
        (["ada", KEYS["100 kB"]], "longer than a public key"),
        (["ada", "no-such-file.pub"], "there is no file no-such-file.pub"),
        (["ada", "~/no/such/file"], "there is no file of that name"),
        (["ada", "/dev/zero"], "no file"),
        (["ada"], "a person needs a key"),
        (["ada", ed25519(), "--github", "ada"], "a person needs a key"),
        (["ada", ed25519(), "--expires", "2020-01-01"], "over already"),
        (["ada", ed25519(), "--expires", "tomorrow"], "not a time"),
        (["ada", ed25519(), "--seat", "../x"], "must be a chip"),
        (["ada", ed25519(), "--note", "a\nb"], "one printable line"),
        (["ada", "--github", "../ada"], "not the name of a GitHub user"),
        (["grace", ed25519(5)], "in the list already"),
        (["ada", ed25519(9)], "the key of ada is grace's"),
        (["grace_", ed25519()], "'grace_' looks like 'grace'"),
        (["operator", ed25519()], "must be a plain Linux user name"),
        (["--", "-x", ed25519()], "must be a plain Linux user name"),
        ([NAMES["unseen: ESC"], ed25519()], "must be a plain Linux user name"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_is_written(desk: Desk, words: list[str], said: str) -> None:
    file = desk.directory / "people.yaml"
    file.write_text(f"- {{name: grace, key: {ed25519(9)}}}\n")
    done = desk.run("people", "add", *words, ok=False)
    refused(done, said)
    assert file.read_text() == f"- {{name: grace, key: {ed25519(9)}}}\n"


@pytest.mark.parametrize(
    "text", [OPENSSH_PRIVATE.encode(), b"\xff\xfe\x00", b"\x00" * 70_000, b"", KEYS["two keys by newline"].encode()]
)
def test_hostile_standard_input_is_refused(desk: Desk, text: bytes) -> None:
    refused(desk.run("people", "add", "ada", "-", given=text, ok=False))
    assert not (desk.directory / "people.yaml").exists()


def test_a_mistake_in_the_list_has_its_place_in_every_command(desk: Desk) -> None:
    (desk.directory / "people.yaml").write_text("- {name: root, key: ssh-dss AAAA}\n")
    for words in (["people", "list"], ["people", "add", "ada", ed25519()], ["status"]):
        done = desk.run(*words, ok=False)
        assert done.exit_code == 2
        assert "people.yaml:1:10: " in done.stderr


def test_a_list_in_the_fleet_file_is_read_and_not_changed(desk: Desk) -> None:
    file = desk.directory / "tpufleet.yaml"
    file.write_text(file.read_text() + f"people: [{{name: ada, key: {ed25519()}}}]\n")
    text = file.read_text()
    refused(desk.run("people", "add", "grace", ed25519(2), ok=False), "only you change", "grace", ed25519(2))
    assert (listed(desk), file.read_text()) == ({"ada": "tpu-0-w0:0"}, text)


# --------------------------------------------------------------------------------------------------------- GitHub


class Hub(BaseHTTPRequestHandler):
    """Answers as https://github.com/USER.keys does."""

    answers = {  # noqa: RUF012 (read only)
        "/ada.keys": (200, f"{rsa(2048)}\n{ed25519(1)}\n{ed25519(2)}\n"),
        "/none.keys": (200, ""),
        "/old.keys": (200, f"{rsa(2048)}\n"),
        "/moved.keys": (302, ""),
        "/busy.keys": (503, "later"),
        "/long.keys": (200, "x" * 300_000),
    }
    gate = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/slow.keys":
            self.gate.wait(30)
        code, text = self.answers.get(self.path, (404, "Not Found"))
        self.send_response(code)
        self.send_header("Location", "/ada.keys")
        self.send_header("Content-Length", str(len(text)))
        with contextlib.suppress(ConnectionError):  # who asked has heard enough, or waits no longer
            self.end_headers()
            self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Hub.gate.set()
        server.shutdown()
        thread.join()


def test_the_first_key_at_github_that_may_be_used(desk: Desk, hub: str) -> None:
    desk.env[github.SERVER_VARIABLE] = hub
    done = desk.run("people", "add", "ada", "--github", "ada")
    assert "1 other key there left out" in done.stderr
    assert ed25519(1) in (desk.directory / "people.yaml").read_text()


@pytest.mark.parametrize(
    ("user", "kind", "said"),
    [
        ("nobody", UsageError, "there is no user nobody at GitHub"),
        ("none", UsageError, "none has no key at GitHub"),
        ("old", UsageError, "none of the 1 keys of old at GitHub can be used"),
        ("moved", Unreachable, "it answered with 302"),
        ("busy", Unreachable, "it answered with 503"),
        ("long", Unreachable, "too long"),
        ("slow", Unreachable, "timed out"),
    ],
)
def test_what_github_says_otherwise(
    hub: str, monkeypatch: pytest.MonkeyPatch, user: str, kind: type[Exception], said: str
) -> None:
    monkeypatch.setenv(github.SERVER_VARIABLE, hub)
    monkeypatch.setattr(github, "TIMEOUT_S", 0.3 if user == "slow" else 5.0)
    with pytest.raises(kind, match=said):
        github.github_keys(user)


def test_without_a_network_it_is_said_and_the_other_way_is_named(desk: Desk) -> None:
    desk.env[github.SERVER_VARIABLE] = "http://127.0.0.1:1"
    done = desk.run("people", "add", "ada", "--github", "ada", ok=False)
    assert done.exit_code == 5
    assert "GitHub could not be asked" in done.stderr
    assert "without it: tpufleet people add" in done.stderr


@pytest.mark.parametrize("server", ["http://example.org", "file:///etc", "https://me@x/..", "ftp://127.0.0.1"])
def test_keys_come_from_nowhere_else(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setenv(github.SERVER_VARIABLE, server)
    with pytest.raises(UsageError, match="must be an https"):
        github.github_keys("ada")


# ---------------------------------------------------------------------------------------------------------- cards


def test_cards_of_a_fleet_that_is_there(fleet: Project, tmp_path: Path) -> None:
    for index, name in enumerate(("ada", "grace")):
        fleet.run("people", "add", name, ed25519(index))
    answer = fleet.json("people", "card")
    assert set(answer) == documented("people card")
    cards = {card["name"]: card for card in answer["cards"]}
    assert {name: card["seat"] for name, card in cards.items()} == {"ada": "tpu-0-w0:0", "grace": "tpu-1-w0:0"}

    fleet.run("ssh-config")
    known = fleet.directory / ".tpufleet" / "known_hosts"
    hashes = subprocess.run(["ssh-keygen", "-lf", known], capture_output=True, text=True, check=True).stdout
    assert all(card["fingerprint"] in hashes for card in cards.values())
    addresses = {host["name"]: host["address"] for host in fleet.json("create")["hosts"]}
    assert all(f"@{addresses[card['host']]}" in card["text"] for card in cards.values())

    page = tmp_path / "cards.html"
    assert fleet.json("people", "card", "grace", "--html", "--file", str(page))["file"] == str(page)
    assert page.read_text().count("<article>") == 1
    fleet.run("people", "seat", "ada", "tpu-0-w0:3")
    done = fleet.run("people", "card", "ada").stdout
    assert "sherlock: the card of ada" in done
    assert "(tpu-0-w0:3)" in done
    refused(fleet.run("people", "card", "adda", ok=False), "adda", "ada")


def test_there_is_no_card_for_a_host_that_is_not_there(fleet: Project) -> None:
    desk = fleet
    text = (desk.directory / "tpufleet.yaml").read_text()
    (desk.directory / "tpufleet.yaml").write_text(text.replace("count: 2", "count: 3"))
    try:
        desk.run("people", "add", "late", ed25519(20), "--seat", "tpu-2-w0:0")
        refused(
            desk.run("people", "card", "late", ok=False), "tpu-2-w0, where late sits, is not ready", "tpufleet create"
        )
    finally:
        desk.run("people", "revoke", "late")
        (desk.directory / "tpufleet.yaml").write_text(text)
