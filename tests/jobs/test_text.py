"""Where the training job's text comes from, without torch; the network is a server on loopback."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .trainings import load_module

text = load_module("text")
BODY = b"It was the best of texts. " * 40
SHA256 = hashlib.sha256(BODY).hexdigest()


@dataclass
class Site:
    """A web server that serves `body` and counts how often."""

    url: str = ""
    body: bytes = BODY
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append(self.path)
            self.send_response(200 if self.path == "/text" else 404)
            self.end_headers()
            self.wfile.write(site.body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/text"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def refused(source: str) -> str:
    with pytest.raises(text.TextError) as refusal:
        text.load(source)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_text_from_the_network_is_checked_and_fetched_only_once(site: Site) -> None:
    for _ in range(2):
        assert text.load(f"{site.url}#sha256={SHA256}").data == BODY
    assert site.requests == ["/text"]


def test_a_text_that_is_not_what_its_checksum_says_is_refused_and_not_kept(site: Site, tmp_path: Path) -> None:
    site.body = b"something else"
    assert "is another than expected" in refused(f"{site.url}#sha256={SHA256}")
    assert not (tmp_path / "cache").exists()


def test_a_damaged_copy_in_the_cache_is_fetched_again(site: Site, tmp_path: Path) -> None:
    text.load(f"{site.url}#sha256={SHA256}")
    (tmp_path / "cache" / "tpufleet-gpt" / SHA256).write_bytes(BODY[:100])
    assert text.load(f"{site.url}#sha256={SHA256}").data == BODY
    assert len(site.requests) == 2


def test_runs_that_start_together_share_the_cache(site: Site, tmp_path: Path) -> None:
    found: list[bytes] = []
    load = lambda: found.append(text.load(f"{site.url}#sha256={SHA256}").data)  # noqa: E731
    together = [threading.Thread(target=load) for _ in range(8)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert found == [BODY] * 8
    assert [path.name for path in (tmp_path / "cache" / "tpufleet-gpt").iterdir()] == [SHA256]


def test_a_cache_that_cannot_be_written_does_not_stop_a_run(site: Site, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    assert text.load(f"{site.url}#sha256={SHA256}").data == BODY


@pytest.mark.parametrize("end", ["", "#sha256=", "#sha256=123", "#sha256=" + "g" * 64, "#sha256=../../x"])
def test_a_text_from_the_network_needs_its_checksum(end: str) -> None:
    assert "needs its checksum" in refused(f"https://example.invalid/text{end}")


def test_a_named_text_that_cannot_be_had_is_an_error(site: Site) -> None:
    assert "can't be had" in refused(f"{site.url}/nowhere#sha256={SHA256}")
    assert "can't be had" in refused(f"http://127.0.0.1:notaport/#sha256={SHA256}")


def test_without_a_network_the_usual_text_is_replaced_and_that_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "SHERLOCK", f"{site.url}/nowhere#sha256={SHA256}")
    said: list[str] = []
    loaded = text.load(None, said.append)
    assert loaded.source == "builtin:python-docs"
    assert len(said) == 1
    assert "can't be had" in said[0]
    assert "builtin:python-docs" in said[0]


def test_the_usual_text_is_taken_when_it_can_be_had(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "SHERLOCK", f"{site.url}#sha256={SHA256}")
    said: list[str] = []
    assert text.load(None, said.append).data == BODY
    assert said == []


def test_the_usual_text_is_named_with_its_checksum() -> None:
    assert text.SHERLOCK.endswith("#sha256=c37844f5b8e03d0cb338d87b2622325aec88b82e9153e39afbc89166663ff0d7")


def test_the_built_in_text_is_there_and_always_the_same() -> None:
    first, second = text.load("builtin:python-docs"), text.load("builtin:python-docs")
    assert len(first.data) > 100_000
    assert first.sha256 == second.sha256
    assert "the one that is built in is" in refused("builtin:bible")


def test_files_that_are_not_there_or_not_files_are_refused(tmp_path: Path) -> None:
    assert "there is no text file" in refused(str(tmp_path / "missing"))
    assert "there is no text file" in refused(str(tmp_path))
    assert "\x1b" not in refused("\x1b[31mred")
    assert "can't be read: File name too long" in refused("a" * 300)


def test_a_file_larger_than_memory_likes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert "has more than 1024 MiB" in refused(str(tmp_path / "huge"))


def test_only_the_webs_own_schemes_are_fetched_however_they_are_written() -> None:
    assert "comes by https or http, not as file:///etc/passwd" in refused("file:///etc/passwd")
    assert "needs its checksum" in refused("HTTPS://example.invalid/text")


def test_any_bytes_are_a_text(tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(256)) * 10)
    training, testing = text.load(str(file)).split(context=100)
    assert training + testing == bytes(range(256)) * 10
    assert len(training) == 2048


def test_a_text_too_short_for_its_context_is_refused_in_words() -> None:
    with pytest.raises(text.TextError, match="is empty"):
        text.Text("nothing", b"").split(128)
    with pytest.raises(text.TextError, match="has 600 bytes, too few for a context of 128: 20% of it"):
        text.Text("short", b"x" * 600).split(128)
    _, testing = text.Text("just enough", b"x" * 645).split(128)
    assert len(testing) == 129


def test_what_reaches_a_terminal_holds_no_control_characters() -> None:
    hostile = "a\x1b]52;c;eA==\x07b\r\x9bc\u202ed\u2028e\x00f\n\tg é"
    assert text.printable(hostile) == "a�]52;c;eA==�b��c�d�e�f\n\tg é"
