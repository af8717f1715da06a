"""The card: everything a person needs, in lines that work as they stand; as text and as a page."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.project import missing
from tpufleet.cards import Card, text
from tpufleet.names import FleetName, PersonName, Seat
from tpufleet.report.cards import cards_page

CARD = Card(
    fleet=FleetName("sherlock"),
    name=PersonName("ada"),
    seat=Seat("tpu-0-w0:2"),
    address="203.0.113.17",
    port=22,
    alias="tpufleet-8123456789012345678-w0",
    fingerprint="SHA256:8ficQMnD48L8D+fsyadT6QOWBuZJeNDKi+VVyLrWi2I",
    repo="https://github.com/matomatical/bitesizedGPT",
    clone="bitesizedGPT",
    setup=("uv venv", "uv pip install -r requirements.txt"),
    train=("python", "train.py", "xla"),
    expires=datetime(2026, 12, 1, 22, 0, tzinfo=UTC),
)
WORDS = ("python", "</code><script>alert(1)</script>", "$(rm -rf ~)", "\x1b[2J\u202e")
HOSTILE = replace(CARD, train=WORDS, workdir="a b")


def commands(card: Card) -> list[str]:
    """What is to be copied: the lines that are indented."""
    return [line.strip() for line in text([card]).splitlines() if line.startswith("    ")]


def asked(tmp_path: Path, *words: str) -> dict[str, str]:
    """What OpenSSH makes of its command line: `ssh -G`."""
    config = tmp_path / "none"
    config.touch()
    file = [] if "-F" in words else ["-F", str(config)]
    done = subprocess.run(["ssh", "-G", *file, *words], capture_output=True, text=True, check=True)
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
    return {**dict(lines), "identityfile": next(value for name, value in lines if name == "identityfile")}


def test_the_card_says_all_that_it_must() -> None:
    said = text([CARD])
    for words in (
        *("ada", "tpu-0-w0", "203.0.113.17", "2026-12-01 22:00 UTC", CARD.fingerprint, "(tpu-0-w0:2)"),
        *("macOS, Linux, WSL", "Windows (PowerShell)", "git clone https://github.com/matomatical/bitesizedGPT"),
        "ssh-keygen -t ed25519 -C ada -f ~/.ssh/tpu-sherlock",
        'ssh-keygen -t ed25519 -C ada -f "$HOME\\.ssh\\tpu-sherlock"',
        'ssh -i "$HOME\\.ssh\\tpu-sherlock" -o IdentitiesOnly=yes ada@203.0.113.17',
        "cd ~/bitesizedGPT && on-chip cpu -- python train.py xla",
        "cd ~/bitesizedGPT && on-chip -- python train.py xla",
        *(
            "chips",
            "completions.jsonl",
            "https://github.com/settings/keys",
            "House rules",
            "Leave",
            "scp -r sherlock:bitesizedGPT .",
            "exit",
        ),
    ):
        assert words in said, words


def test_the_text_is_eighty_columns_wide() -> None:
    assert max(len(line) for line in text([CARD]).splitlines()) <= 80


@pytest.mark.parametrize("port", [22, 2222])
@pytest.mark.parametrize("address", ["203.0.113.17", "2001:db8::7", "tpu.example.org"])
def test_openssh_reads_the_line_and_the_block_as_they_are_meant(tmp_path: Path, port: int, address: str) -> None:
    card = replace(CARD, port=port, address=address)
    line = next(command for command in commands(card) if command.startswith("ssh -i ~"))
    block = text([card]).partition("    Host sherlock\n")[2].partition("From then on")[0]
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "tpu-sherlock").touch()
    words = [word.replace("~", str(tmp_path)) for word in shlex.split(line)[1:]]  # as a shell has it
    (tmp_path / "config").write_text("Host sherlock\n" + block)
    for found in (asked(tmp_path, *words), asked(tmp_path, "-F", str(tmp_path / "config"), "sherlock")):
        assert (found["user"], found["hostname"], found["port"]) == ("ada", address, str(port))
        assert found["identityfile"].endswith("/.ssh/tpu-sherlock")
        assert found["identitiesonly"] == "yes"
    assert found["hostkeyalias"] == CARD.alias
    assert found["hostkeyalgorithms"] == "ssh-ed25519"


def test_code_without_an_address_is_in_the_home_and_without_code_nobody_goes_anywhere() -> None:
    local = replace(CARD, repo=None)
    assert "cd ~/bitesizedGPT && on-chip -- python train.py xla" in commands(local)
    assert not [command for command in commands(local) if "git clone" in command]
    assert "on-chip -- python train.py xla" in commands(replace(CARD, repo=None, clone="", setup=()))


def test_a_training_in_a_directory_of_the_clone() -> None:
    assert "cd ~/bitesizedGPT/jobs/gpt && on-chip -- python train.py xla" in commands(replace(CARD, workdir="jobs/gpt"))
    assert "cd ~/bitesizedGPT && uv venv" in commands(replace(CARD, workdir="jobs/gpt"))


def test_words_of_a_training_stay_words() -> None:
    line = next(command for command in commands(HOSTILE) if "on-chip --" in command)
    assert shlex.split(line.partition("on-chip -- ")[2]) == list(WORDS)


def test_a_whole_host_and_another_kind_of_host_key() -> None:
    card = replace(CARD, seat=Seat("tpu-0-w0"), host_key_kind="ssh-rsa", jump="bastion.example.org:2222")
    assert "chip      all of the host's" in text([card])
    line = next(command for command in commands(card) if command.startswith("ssh -i ~"))
    assert "-J bastion.example.org:2222" in line
    assert "-o HostKeyAlgorithms=" in line


class Page(HTMLParser):
    """The tags of a page, and what is in its commands."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.policy = ""
        self.codes: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        assert not {"src", "href", "style"} & set(values)
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""
        if tag == "code":
            self.codes.append("")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["code"]:
            self.codes[-1] += data


def test_the_page_has_the_same_commands_and_needs_nothing_from_anywhere() -> None:
    page = Page(cards_page([CARD, replace(CARD, name=PersonName("grace"))]))
    assert page.tags.count("article") == 2
    assert not {"script", "img", "link", "iframe", "form", "a"} & set(page.tags)
    assert page.policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    lines = [line.strip() for code in page.codes[: len(page.codes) // 2] for line in code.split("\n")]
    assert [line for line in lines if line] == commands(CARD)


def test_text_stays_text_in_the_page() -> None:
    page = cards_page([HOSTILE])
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert any("</code><script>alert(1)</script>" in code for code in Page(page).codes)


@pytest.mark.skipif(missing("chromium") is not None, reason="chromium is not installed")
def test_each_card_is_one_sheet_of_paper(tmp_path: Path) -> None:
    (tmp_path / "cards.html").write_text(cards_page([CARD, replace(CARD, name=PersonName("grace"))]))
    chromium = [shutil.which("chromium") or "", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    places = [f"--user-data-dir={tmp_path}/profile", f"--print-to-pdf={tmp_path}/cards.pdf"]
    subprocess.run(
        [*chromium, *places, (tmp_path / "cards.html").as_uri()], check=True, capture_output=True, timeout=60
    )
    assert re.findall(rb"/Type\s*/Pages\s*/Count (\d+)|/Count (\d+)", (tmp_path / "cards.pdf").read_bytes())
    counts = re.findall(rb"/Count (\d+)", (tmp_path / "cards.pdf").read_bytes())
    assert max(map(int, counts)) == 2
