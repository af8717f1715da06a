"""The points at which a command can be killed: wherever it changes something, before, between and after.

They are put around the effects from outside, at the ports where these are few: the cloud, the agent on a host, the
journal. Files at home are seen through the interpreter's audit events, which no way to write a file goes round.

| point | the process dies |
|---|---|
| `cloud.VERB:before`, `:sent`, `:after` | before the request; carried out, with its answer unread; after |
| `agent.VERB:before`, `:sent`, `:after` | before it is asked; when all was sent, while the host is at work; after |
| `agent.upload:part` | with a part of the file sent |
| `agent.fetch:read` | before the next bytes of what comes home |
| `journal.ACTION:before`, `:begun`, `:ended` | before the intent; before the effect; with its end written down |
| `PLACE:open`, `:rename`, `:remove` … | before a file is opened for writing, renamed and so on |
| `PLACE:torn` | with the half of a file written, before its rename |
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import select
import sys
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tests.faults.doomed import Doom

CHANGING_VERBS = ("enqueue", "stop", "code", "restore")
CHANGING_GIT = ("init", "update-ref", "bundle")
ANSWER_WITHIN_S = 30.0
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ASIDE = re.compile(r"^\.(.+)\.part$")  # NAME beside itself, until it is renamed
CONTENT = re.compile(r"(?<=^step-\d{8})\.[0-9a-f]{16}$")  # of which a checkpoint is that is on its way

# Which of the effects is under way in this thread: what is sent meanwhile is its request.
_current: ContextVar[str] = ContextVar("effect", default="")


def install(doom: Doom) -> None:
    """Put the points into this process. All that is used is imported first, so that only effects pass them."""
    _install_cloud(doom)
    _install_agent(doom)
    _install_journal(doom)
    _install_files(doom)


@contextlib.contextmanager
def _effect(doom: Doom, name: str) -> Generator[None]:
    doom.reach(f"{name}:before")
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)
    doom.reach(f"{name}:after")


def _around(doom: Doom, owner: type, method: str, name: Callable[..., str | None]) -> None:
    """Every call of `owner.method` is an effect, named by `name(*arguments)`; None: it changes nothing."""
    original = getattr(owner, method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        effect = name(*arguments)
        if effect is None:
            return original(*arguments, **options)
        with _effect(doom, effect):
            return original(*arguments, **options)

    setattr(owner, method, wrapped)


# ------------------------------------------------------------------------------------------------------------ the cloud


def _install_cloud(doom: Doom) -> None:
    from tpufleet.cloud.tpu_api import TpuCloud

    for verb in ("create", "start", "delete", "delete_queued", "update"):
        _around(doom, TpuCloud, verb, lambda *_, name=f"cloud.{verb}": name)
    original = http.client.HTTPConnection.getresponse

    def getresponse(self: Any, *arguments: Any, **options: Any) -> Any:
        effect = _current.get()
        if effect.startswith("cloud.") and self._method != "GET":
            # what is to be killed waits until the cloud has done it: not done is what `before` leaves
            doom.reach(f"{effect}:sent", lambda: _answered(self.sock))
        return original(self, *arguments, **options)

    http.client.HTTPConnection.getresponse = getresponse  # type: ignore[method-assign]  # on purpose, see above


def _answered(connection: Any) -> None:
    if not select.select([connection], [], [], ANSWER_WITHIN_S)[0]:
        raise TimeoutError("the cloud did not answer")


# ------------------------------------------------------------------------------------------------------------ the hosts


def _install_agent(doom: Doom) -> None:
    from tpufleet.ssh.agent import Agent
    from tpufleet.ssh.stream import ChannelStream

    _around(doom, Agent, "ask", lambda _, verb, *__: f"agent.{verb}" if verb in CHANGING_VERBS else None)
    for method in ("ship", "ship_and_ask"):
        _around(doom, Agent, method, lambda *_: "agent.ship")
    _install_upload(doom, Agent)
    _install_fetch(doom, Agent)
    feed, close_stdin = ChannelStream.feed, ChannelStream.close_stdin

    def feeding(self: Any, *arguments: Any, **options: Any) -> None:
        self.effect = _current.get()  # the sending is done by another thread
        feed(self, *arguments, **options)

    def closing(self: Any) -> None:
        close_stdin(self)
        if effect := getattr(self, "effect", ""):
            doom.reach(f"{effect}:sent")

    ChannelStream.feed, ChannelStream.close_stdin = feeding, closing  # type: ignore[method-assign]  # on purpose


def _install_upload(doom: Doom, agent: Any) -> None:
    upload = agent.upload

    def uploading(self: Any, path: Path, to: str) -> None:
        left = path.stat().st_size

        def progress(sent: int) -> None:
            nonlocal left
            left -= sent
            if left:
                doom.reach("agent.upload:part")

        with _effect(doom, "agent.upload"):
            upload(self, path, to, progress=progress)

    agent.upload = uploading


def _install_fetch(doom: Doom, agent: Any) -> None:
    original = agent.open

    @contextlib.contextmanager
    def opening(self: Any, verb: str, payload: Mapping[str, Any]) -> Generator[Any]:
        with original(self, verb, payload) as stream:
            if verb == "fetch":
                read = stream.read

                def reading(size: int) -> bytes:
                    doom.reach("agent.fetch:read")
                    return read(size)

                stream.read = reading
            yield stream

    agent.open = opening


# ---------------------------------------------------------------------------------------------------------- the journal


def _install_journal(doom: Doom) -> None:
    from tpufleet.state import store

    for method in ("placed", "forget", "mark"):
        _around(doom, store.Journal, method, lambda *_, name=f"journal.{method}": name)
    original, migrate = store.Journal.intent, store.migrate

    @contextlib.contextmanager
    def intent(self: Any, command: str, action: str, subject: str, **detail: Any) -> Generator[None]:
        doom.reach(f"journal.{action}:before")
        with original(self, command, action, subject, **detail):
            doom.reach(f"journal.{action}:begun")
            yield
        doom.reach(f"journal.{action}:ended")

    def migrating(db: Any) -> None:
        if db.execute("PRAGMA user_version").fetchone()[0] == len(store.MIGRATIONS):
            migrate(db)
            return
        with _effect(doom, "journal.migrate"):
            migrate(db)

    store.Journal.intent, store.migrate = intent, migrating  # type: ignore[method-assign]  # on purpose


# -------------------------------------------------------------------------------------------------------- files at home


def _install_files(doom: Doom) -> None:
    top = Path.cwd()

    def place(path: Any, directory: int = -1) -> str | None:
        return _place(top, path, directory)

    def seen(event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(given[2], int) and given[2] & WRITING and (name := place(given[0])):
                doom.reach(f"{name}:open")
        elif event == "os.rename":
            if name := place(given[1]):
                source = Path(os.fsdecode(given[0]))
                if source.is_file():
                    doom.reach(f"{name}:torn", lambda: os.truncate(source, source.stat().st_size // 2))
                doom.reach(f"{name}:rename")
        elif event in ("os.remove", "os.mkdir", "os.rmdir"):
            changes = given[-1] >= 0 or os.path.lexists(given[0]) is not (event == "os.mkdir")
            if changes and (name := place(given[0], given[-1])):
                doom.reach(f"{name}:{event.removeprefix('os.')}")
        elif event == "subprocess.Popen":
            words = list(given[1])
            if words[:2] == ["git", "-C"] and words[3] in CHANGING_GIT:
                doom.reach(f"git.{words[3]}:before")

    sys.addaudithook(seen)


def _place(top: Path, path: Any, directory: int) -> str | None:
    """A path of the project as a table names it (no pids, no run ids); None for what is not tpufleet's at home."""
    if isinstance(path, int):
        return None
    text = os.fsdecode(path)
    if directory >= 0:
        text = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), text)  # noqa: PTH118, PTH115 - in an audit hook
    if not text.startswith((f"{top}/.tpufleet", f"{top}/artifacts")):
        return None
    parts = [CONTENT.sub("", ASIDE.sub(r"\1.part", part)) for part in text[len(str(top)) + 1 :].split("/")]
    if parts[0] == ".tpufleet":
        parts[0] = "state"
        if parts[1:] and parts[1].startswith("bundle-"):
            return "state/bundle"
    else:
        parts[:2] = ["home"]
        if parts[1:2] in (["runs"], ["earlier"]) and parts[2:]:
            parts[2] = "RUN"
    return None if parts[-1].startswith("journal.db") else "/".join(parts)
