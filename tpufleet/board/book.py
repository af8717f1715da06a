"""The book of sign-ups, beside the fleet's other state: who came, what became of it, and by which code.

Whoever restarts the board finds everybody where they were: links to cards go on, and so does the invitation.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tpufleet.board.signup import Invitation, SignUp, State, new_token
from tpufleet.config.edits import rfc3339
from tpufleet.errors import StateError
from tpufleet.names import PersonName
from tpufleet.paths import write_atomically
from tpufleet.personkey import parse_person_key


class Book:
    """Every change is on disk (0600) before it is answered; safe from any thread. Raises StateError.

    Whoever removes the file ends the evening, also for a board that is open: nobody has signed up, no code is good.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._sign_ups: dict[str, SignUp] = {}
        self._invitation: Invitation | None = None
        self._is_kept = False
        self.viewer = new_token()  # lets people look at the board who aren't on this machine
        self._read()

    @property
    def invitation(self) -> Invitation | None:
        with self._opened():
            return self._invitation

    def sign_ups(self, *states: State) -> list[SignUp]:
        """Those in one of `states` (all, if none is named), as they came."""
        with self._opened():
            return [sign_up for sign_up in self._sign_ups.values() if not states or sign_up.state in states]

    def find(self, name: str) -> SignUp | None:
        with self._opened():
            return self._sign_ups.get(name)

    def opened_by(self, token: str) -> SignUp | None:
        """Whose card a link leads to."""
        return next((sign_up for sign_up in self.sign_ups() if sign_up.opened_by(token)), None)

    def put(self, sign_up: SignUp) -> None:
        """Keep a sign-up, in place of one of that name."""
        with self._opened():
            self._sign_ups[sign_up.name] = sign_up
            self._write()

    def change(self, name: str, how: Callable[[SignUp], SignUp]) -> None:
        """Let a sign-up be what `how` makes of it, whatever it has become since it was last looked at."""
        with self._opened():
            if name in self._sign_ups:
                self._sign_ups[name] = how(self._sign_ups[name])
                self._write()

    def mark(self, names: Iterable[str], state: State, *, only: Iterable[State] = tuple(State)) -> list[str]:
        """Let those be in `state` who are in one of the states `only` now; gives their names."""
        with self._opened():
            marked = [name for name in names if name in self._sign_ups and self._sign_ups[name].state in only]
            for name in marked:
                self._sign_ups[name] = replace(self._sign_ups[name], state=state)
            if marked:
                self._write()
            return marked

    def invite(self, invitation: Invitation) -> None:
        with self._opened():
            self._invitation = invitation
            self._write()

    @contextlib.contextmanager
    def _opened(self) -> Generator[None]:
        with self._lock:
            if self._is_kept and not self._path.exists():
                self._is_kept, self._invitation, self._sign_ups = False, None, {}
            yield

    def _read(self) -> None:
        try:
            data = cast("dict[str, Any]", json.loads(self._path.read_bytes()))
            self.viewer = str(data["viewer"])
            if invited := data["invitation"]:
                self._invitation = Invitation(str(invited["code"]), _moment(invited["until"]))
            self._sign_ups = {entry["name"]: _sign_up(entry) for entry in data["people"]}
            self._is_kept = True
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            hint = f"rm '{self._path}'; who waits there then signs up again"
            raise StateError("the sign-ups can't be read", where=str(self._path), hint=hint) from error

    def _write(self) -> None:
        invited = self._invitation
        data = {
            "viewer": self.viewer,
            "invitation": {"code": invited.code, "until": rfc3339(invited.until)} if invited else None,
            "people": [_fields(sign_up) for sign_up in self._sign_ups.values()],
        }
        try:
            write_atomically(self._path, (json.dumps(data, indent=1) + "\n").encode())
            self._is_kept = True
        except OSError as error:
            raise StateError(f"the sign-ups can't be kept: {error.strerror}", where=str(self._path)) from error


def _fields(sign_up: SignUp) -> dict[str, Any]:
    return {
        "name": sign_up.name,
        "key": str(sign_up.key),
        "share": sign_up.share,
        "since": rfc3339(sign_up.since),
        "state": sign_up.state,
        "links": sign_up.links,
        "returns": sign_up.returns,
    }


def _sign_up(entry: dict[str, Any]) -> SignUp:
    return SignUp(
        PersonName(entry["name"]),
        parse_person_key(entry["key"]),
        entry["share"] is True,
        _moment(entry["since"]),
        State(entry["state"]),
        tuple(str(link) for link in entry["links"]),
        entry.get("returns") is True,
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
