"""The end of a node's ttl, kept by the node itself: `python3 ttl.py`, as root, from each boot on.

The startup script starts this file, alone, before anything else of ours is on the host (`ops/startup.py`). Worker 0
asks the Cloud TPU API when its node was made and how long it may live (the label `tpufleet-ttl`, in seconds), waits
for the end, and then deletes the node, as the node's service account, again and again until it is gone. A node that
lost the label meanwhile (`tpufleet adopt --release`) is left alone. What it could do, and why not, stands in
`ttl.json`.

Everything it needs to know of itself comes from the metadata server. A TPU VM lives in a project of Google's; the
person's own project is in `tpu-env` alone (https://cloud.google.com/tpu/docs/manage-tpus-tpu-vm).
"""

from __future__ import annotations

import calendar
import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

Json = dict[str, Any]

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT_S = 30.0
LABEL = "tpufleet-ttl"
LOOK_AT_NODE_S = 300.0  # a label that was changed or taken away is noticed this late, and always before the end
LOOK_AT_CLOCK_S = 20.0  # a clock that was stepped, or a sleep of the whole machine, is noticed this late
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 300.0


class Trouble(Exception):
    """Why the node can't delete itself now, as a sentence for a person."""


class Node:
    """The node this host belongs to, as the metadata server and the Cloud TPU API know it."""

    def __init__(self) -> None:
        host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        api = os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU") or "https://tpu.googleapis.com/"
        self._metadata = f"http://{host}/computeMetadata/v1/"
        self._api = api.rstrip("/") + "/v2/"

    def is_worker_zero(self) -> bool:
        return self._told("instance/attributes/agent-worker-number").strip() in ("", "0")

    def ends(self) -> float | None:
        """When its ttl is over, in seconds of Unix time; None when it has none (any more).

        Raises Trouble when this host couldn't delete its node now, as far as that can be known without doing it.
        """
        node = self._see(self._token())
        labels = (node or {}).get("labels")
        seconds = str(cast("Json", labels).get(LABEL, "")) if isinstance(labels, dict) else ""
        if node is None or not seconds.isdecimal():
            return None
        try:  # `2026-11-21T07:25:03.123456789Z`: Python 3.10 can't read nine digits, and a second is enough
            made = calendar.timegm(time.strptime(str(node.get("createTime"))[:19], "%Y-%m-%dT%H:%M:%S"))
        except ValueError:
            raise Trouble("the Cloud TPU API doesn't say when the node was made") from None
        return made + float(seconds)

    def delete(self) -> bool:
        """Asks for the end of the node, with the queued resource that it belongs to; True when it is gone."""
        token = self._token()
        node = self._see(token)
        if node is None:
            return True
        queued = node.get("queuedResource")
        if node.get("state") != "DELETING":
            self._call("DELETE", f"{queued}?force=true" if queued else self._name(), token)
        return False

    def _see(self, token: str) -> Json | None:
        """The node as the API shows it; None when there is none any more."""
        return self._call("GET", self._name(), token)

    def _name(self) -> str:
        """`projects/P/locations/Z/nodes/N`; `tpu-env` has lines such as `ZONE: 'us-central1-b'`."""
        told = self._told("instance/attributes/tpu-env")
        facts = {
            key.strip(): value.strip(" '\"") for key, _, value in (line.partition(":") for line in told.splitlines())
        }
        try:
            return f"projects/{facts['CONSUMER_PROJECT_ID']}/locations/{facts['ZONE']}/nodes/{facts['NODE_ID']}"
        except KeyError as missing:
            raise Trouble(f"the metadata server doesn't name the node ({missing} is missing in tpu-env)") from None

    def _token(self) -> str:
        account = "instance/service-accounts/default/"
        scopes = self._told(account + "scopes").split()
        if not scopes:
            raise Trouble("it has no service account")
        if CLOUD_PLATFORM not in scopes:
            raise Trouble("its service account has not the scope cloud-platform")
        token = _object(self._told(account + "token")).get("access_token")
        if not isinstance(token, str):
            raise Trouble("the metadata server gives no token")
        return token

    def _told(self, path: str) -> str:
        """What the metadata server has at `path`, empty where it has nothing; never asked through a proxy."""
        direct = urllib.request.ProxyHandler({})
        try:
            return fetched(self._metadata + path, {"Metadata-Flavor": "Google"}, direct)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return ""
            raise Trouble(f"the metadata server answers {error.code}") from None
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"the metadata server does not answer: {error}") from None

    def _call(self, verb: str, path: str, token: str) -> Json | None:
        """The API's answer; None for a thing that isn't there."""
        try:
            return _object(fetched(self._api + path, {"Authorization": f"Bearer {token}"}, verb=verb))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            said = _object(error.read().decode("utf-8", "replace")).get("error")
            text = cast("Json", said).get("message") if isinstance(said, dict) else error.reason
            raise Trouble(f"the Cloud TPU API answers {error.code}: {text}") from None
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"the Cloud TPU API does not answer: {error}") from None


def fetched(url: str, headers: dict[str, str], *handlers: urllib.request.BaseHandler, verb: str = "GET") -> str:
    """The body of the answer. Raises HTTPError, OSError, HTTPException."""
    request = urllib.request.Request(url, method=verb, headers=headers)  # noqa: S310 (http or https: see Node)
    with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode("utf-8", "replace"))


def _object(text: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return cast("Json", value) if isinstance(value, dict) else {}


def pauses() -> Iterator[float]:
    """Growing pauses with jitter, without end."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause * (0.5 + random.random() / 2)  # noqa: S311 (jitter)
        pause = min(pause * 2, LONGEST_PAUSE_S)


class Note:
    """`ttl.json`, which the agent's `probe` shows: whether the node could delete itself, and why not."""

    def __init__(self, root: Path) -> None:
        self._at = root / "var/lib/tpufleet/ttl.json"
        self._expires: float | None = None

    def write(self, why: str | None, expires: float | None = None) -> None:
        """`why` it can't, None where it can; `expires` where it is known. A full disk keeps nobody from deleting."""
        self._expires = expires or self._expires
        value = {"expires": self._expires, "can_delete": why is None, "why": why}
        aside = self._at.with_name(f".ttl.{os.getpid()}")
        try:
            self._at.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(value))
            aside.replace(self._at)
        except OSError as error:
            print(f"ttl.json can't be written: {error}", flush=True)


class Clock(Protocol):
    """As the module `time`."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


def wait(node: Node, note: Note, clock: Clock = time) -> bool:
    """True when the node's time is over, by its host's clock of that moment; False when it has no ttl (any more).

    What couldn't be done is tried again, less and less often: a permission may be given later.
    """
    later = pauses()
    next_look = clock.monotonic()
    ends: float | None = None
    while True:
        looked = clock.monotonic() >= next_look
        if looked:
            try:
                ends = node.ends()
            except Trouble as trouble:
                note.write(str(trouble), ends)
                next_look = clock.monotonic() + next(later)
            else:
                if ends is None:
                    return False
                note.write(None, ends)
                next_look = clock.monotonic() + LOOK_AT_NODE_S
        left = LOOK_AT_CLOCK_S if ends is None else ends - clock.time()
        if left <= 0:
            if looked:
                return True
            next_look = clock.monotonic()  # once more before the end: it may have been given more time
            continue
        clock.sleep(min(left, LOOK_AT_CLOCK_S, max(0.1, next_look - clock.monotonic())))


def end(node: Node, note: Note, clock: Clock = time) -> None:
    """Until the node is gone, which ends this process too."""
    for pause in pauses():
        try:
            if node.delete():
                return
        except Trouble as trouble:
            print(f"ttl: {trouble}", flush=True)
            note.write(str(trouble))
        clock.sleep(pause)


def main() -> None:
    os.umask(0o022)
    node = Node()
    note = Note(Path(os.environ.get("TPUFLEET_HOST_ROOT") or "/"))
    for pause in pauses():  # at boot the metadata server may still be on its way
        try:
            if not node.is_worker_zero():
                return
            break
        except Trouble as trouble:
            note.write(str(trouble))
            time.sleep(pause)
    if wait(node, note):
        end(node, note)


if __name__ == "__main__":
    main()
