"""The host's agent: one verb per call, a JSON object on stdin, a JSON object (or bytes) on stdout.

Errors: exit code 1 and `{"error": {"kind": …, "message": …}}`. Tracebacks are bugs; they go to `agent.log`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from tpufleet.host import errors, files
from tpufleet.host.errors import HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places

LARGEST_REQUEST = 64 << 20
ROOTS_VERBS = ("accounts", "keep", "expire", "belongings")


# Each verb imports what it needs when it is asked for, so that a probe does not pay for a launch.


def _probe(places: Places, _request: JsonObject) -> JsonObject:
    from tpufleet.host.probe import probe

    return probe(places)


def _enqueue(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.enqueue import enqueue

    return enqueue(places, request)


def _stop(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.stop import stop

    return stop(places, request)


def _code(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.code import code

    return code(places, request)


def _manifest(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.manifest import manifest

    return manifest(places, request)


def _restore(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.restore import restore

    return restore(places, request)


def _wake(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.autostart import wake

    return wake(places, request)


def _accounts(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.accounts import accounts

    return accounts(places, request)


def _keep(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.expiry import keep

    return keep(places, request)


def _shared(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.shared import shared

    return shared(places, request)


def _look(places: Places, request: JsonObject) -> JsonObject:
    from tpufleet.host.look import look

    return look(places, request)


def _belongings(places: Places, request: JsonObject) -> JsonObject | None:
    from tpufleet.host.belongings import belongings

    return belongings(places, request)


def _turn(places: Places, request: JsonObject) -> None:
    from tpufleet.host.turn import take_turn

    take_turn(places, request)


def _log(places: Places, request: JsonObject) -> None:
    from tpufleet.host.logs import write_log

    write_log(places, request)


def _fetch(places: Places, request: JsonObject) -> None:
    from tpufleet.host.fetch import fetch

    fetch(places, request)


VERBS: dict[str, Callable[[Places, JsonObject], JsonObject | None]] = {
    "probe": _probe,
    "enqueue": _enqueue,
    "stop": _stop,
    "code": _code,
    "manifest": _manifest,
    "restore": _restore,
    "wake": _wake,
    "shared": _shared,
    "look": _look,
    "accounts": _accounts,
    "keep": _keep,
    "belongings": _belongings,
    "turn": _turn,
    "log": _log,
    "fetch": _fetch,
}


def main() -> int:
    """Does the verb in sys.argv; gives the exit code."""
    os.umask(0o022)
    places = Places()
    try:
        verb, *words = sys.argv[1:] or [""]
        if verb in ("work", "supervise", "expire"):
            _daemon(places, verb, words)
        elif verb in VERBS:
            answer = VERBS[verb](places, _request())
            if answer is not None:
                _say(answer)
        else:
            raise bad(f"there is no verb {verb!r:.50}; there are {', '.join(VERBS)}")
    except HostError as error:
        return _fail(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the client went away; nothing is left to flush to it
        return 1
    except OSError as error:
        return _fail(_bug(places) if error.errno is None else _logged(places, errors.from_os(error)))
    except Exception:  # noqa: BLE001 - the one place where a bug becomes an answer; its traceback is kept
        return _fail(_bug(places))
    return 0


def _daemon(places: Places, verb: str, words: list[str]) -> None:
    """Those that live long: `work LOCK`, `supervise RUN LOCK [CHIP:LEASE …]` (descriptors they inherit), and root's
    `expire LOCK`."""
    if verb == "expire":
        from tpufleet.host.expiry import expire

        expire(places, int(words[0]))
        return
    if verb == "work":
        from tpufleet.host.queue import work

        work(places, int(words[0]))
        return
    from tpufleet.host.runner import supervise

    leases = {int(chip): int(fd) for chip, _, fd in (word.partition(":") for word in words[2:])}
    supervise(places, words[0], int(words[1]), leases)


def _request() -> JsonObject:
    """The request: one line of JSON, after which stdin may stay open; or JSON over several lines until its end."""
    line = sys.stdin.buffer.readline(LARGEST_REQUEST)
    try:
        value: object = json.loads(line or b"{}")
    except (ValueError, RecursionError):
        try:
            value = json.loads(line + sys.stdin.buffer.read(LARGEST_REQUEST))
        except (ValueError, RecursionError):
            raise bad("the request is not JSON") from None
    request = files.as_object(value)
    if request is None:
        raise bad("the request is not a JSON object")
    return request


def _say(answer: JsonObject) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def _fail(error: HostError) -> int:
    _say({"error": {"kind": error.kind, "message": error.message}})
    return 1


def _logged(places: Places, error: HostError) -> HostError:
    if error.kind == errors.INTERNAL:
        _bug(places)
    return error


def _bug(places: Places) -> HostError:
    """Keeps the traceback of what is being handled, where there is one to be had: in agent.log, root's in its own."""
    import contextlib
    import traceback

    from tpufleet.host import clock

    path = places.accounts_log if sys.argv[1:2] and sys.argv[1] in ROOTS_VERBS else places.agent_log
    with contextlib.suppress(OSError), path.open("a") as log:
        log.write(f"{clock.now()} {' '.join(sys.argv[1:3])}\n{traceback.format_exc()}\n")
    last = traceback.format_exc().strip().splitlines()[-1]
    return HostError(errors.INTERNAL, f"a bug in tpufleet: {last[:300]} (see {path.name} on the host)")
