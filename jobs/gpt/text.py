"""The text to train on: a file, a URL with its sha256, or a text that every Python brings along.

Everything is bytes; nothing is decoded, so any file will do.
"""

import hashlib
import http.client
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SHERLOCK = (
    "https://raw.githubusercontent.com/matomatical/bitesizedGPT/main/data/sherlock-ascii.txt"
    "#sha256=c37844f5b8e03d0cb338d87b2622325aec88b82e9153e39afbc89166663ff0d7"
)
BUILTIN = "builtin:python-docs"

TRAINING_SHARE = 0.8  # of a text; the rest is for testing, as in the workshop
SILENCE_SECONDS = 10  # a server that says nothing for so long is given up
DOWNLOAD_SECONDS = 120  # and one that is not done by then, too
LARGEST = 1 << 30  # bytes: a text is in memory twice


class TextError(Exception):
    """The text can't be had, or can't be used; the message is one sentence for a person."""


@dataclass(frozen=True)
class Text:
    """A text and where it is from."""

    source: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def split(self, context: int) -> tuple[bytes, bytes]:
        """The part to train on and the part to test on, each longer than `context` bytes, or a TextError."""
        cut = int(len(self.data) * TRAINING_SHARE)
        training, testing = self.data[:cut], self.data[cut:]
        if not self.data:
            raise TextError(f"the text is empty: {printable(self.source)}")
        if min(len(training), len(testing)) <= context:
            share = f"{1 - TRAINING_SHARE:.0%} of it, the part to test on"
            raise TextError(
                f"the text has {len(self.data):,} bytes, too few for a context of {context}: {share}, must be longer"
            )
        return training, testing


def load(named: str | None, say: Callable[[str], None] = print) -> Text:
    """The text that is named, or Sherlock Holmes when none is. Raises TextError.

    Only the latter, which nobody asked for by name, is replaced by the built-in text when it can't be had,
    and `say` tells so.
    """
    if named:
        return _fetch(named)
    try:
        return _fetch(SHERLOCK)
    except TextError as error:
        say(f"{error}; training on Python's own documentation instead ({BUILTIN})")
        return _fetch(BUILTIN)


def _fetch(source: str) -> Text:
    if source == BUILTIN:
        return Text(source, _python_docs())
    if source.startswith("builtin:"):
        raise TextError(f"there is no text {printable(source)}; the one that is built in is {BUILTIN}")
    scheme, separator, _ = source.partition("://")
    if separator:
        if scheme.lower() not in ("http", "https"):
            raise TextError(f"a text from the network comes by https or http, not as {printable(source)}")
        return Text(source, _from_url(source))
    return Text(source, _from_file(Path(source)))


def _python_docs() -> bytes:
    """The help texts of the language, about 450 kB; they differ a little from one Python to the next."""
    from pydoc_data.topics import topics  # half a megabyte that few runs want

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


def _from_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise TextError(f"there is no text file {printable(str(path))}")
        if path.stat().st_size > LARGEST:
            raise TextError(f"the text {printable(str(path))} has more than {LARGEST >> 20} MiB; train on a part")
        return path.read_bytes()
    except OSError as error:
        raise TextError(f"the text {printable(str(path))} can't be read: {error.strerror}") from None


def _from_url(source: str) -> bytes:
    """The bytes behind `URL#sha256=HEX`, from the cache or the network, never without the right checksum."""
    url, _, sha256 = source.partition("#sha256=")
    sha256 = sha256.lower()
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise TextError(f"a text from the network needs its checksum: {printable(url)}#sha256=HEX")
    cached = cache_directory(os.environ) / sha256
    data = _cached(cached)
    if hashlib.sha256(data).hexdigest() == sha256:
        return data
    data = _download(url)
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise TextError(f"the text at {printable(url)} is another than expected: its sha256 is {found}")
    _store(cached, data)
    return data


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Where downloaded texts are kept, each under its sha256."""
    base = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  never raises
    return Path(base) / "tpufleet-gpt"


def _cached(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _store(path: Path, data: bytes) -> None:
    """Writes aside and renames, so that runs that start together can't read each other's halves.

    A cache that can't be written costs a download next time, no more.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as aside:
            aside.write(data)
        os.replace(aside.name, path)  # noqa: PTH105  a name, not a Path
    except OSError:
        return


def _download(url: str) -> bytes:
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    data = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as answer:  # noqa: S310  http(s), checked above
            while chunk := answer.read(1 << 16):
                data += chunk
                if len(data) > LARGEST or time.monotonic() > deadline:
                    raise TextError(f"the text at {printable(url)} is too large or too slow to come")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = printable(str(getattr(error, "reason", error)))
        raise TextError(f"the text at {printable(url)} can't be had ({reason})") from None
    return bytes(data)


def printable(text: str) -> str:
    """`text` made safe for a terminal: control and invisible characters become `�`; newline and tab stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
