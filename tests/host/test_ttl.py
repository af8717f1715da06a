"""The timer on the host: what it asks whom, when it asks again, and what it says of itself."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tpufleet.host import ttl

from .harness import PYTHON, Host

NODE = "projects/p/locations/us-central1-b/nodes/tpu-0"
META = "/computeMetadata/v1/instance/"
ENV = "ACCELERATOR_TYPE: 'v2-8'\nZONE: 'us-central1-b'\nNODE_ID: 'tpu-0'\nCONSUMER_PROJECT_ID: 'p'\n"


def made_with(ttl_s: object, state: str = "READY", **more: object) -> str:
    """The node as the API shows it, made at 1000 seconds of Unix time."""
    labels = {} if ttl_s is None else {ttl.LABEL: str(ttl_s)}
    return json.dumps({"state": state, "createTime": "1970-01-01T00:16:40.123456789Z", "labels": labels, **more})


class World:
    """The metadata server and the API as one: `answers` by path, (status, text); what isn't there is a 404."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: dict[str, tuple[int, str]] = {
            META + "attributes/agent-worker-number": (200, "0"),
            META + "attributes/tpu-env": (200, ENV),
            META + "service-accounts/default/scopes": (200, f"{ttl.CLOUD_PLATFORM}\n"),
            META + "service-accounts/default/token": (200, '{"access_token": "secret"}'),
            f"/v2/{NODE}": (200, made_with(0)),
        }

    @property
    def deletes(self) -> list[str]:
        return [call.removeprefix("DELETE /v2/") for call in self.calls if call.startswith("DELETE")]

    def answer(self, verb: str, path: str) -> tuple[int, str]:
        self.calls.append(f"{verb} {path}")
        if verb == "DELETE":
            self.answers.pop(f"/v2/{NODE}", None)
            return 200, "{}"
        return self.answers.get(path, (404, ""))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            needed = (
                ("Metadata-Flavor", "Google") if "computeMetadata" in self.path else ("Authorization", "Bearer secret")
            )
            right = self.headers.get(needed[0]) == needed[1]
            status, text = world.answer(self.command, self.path) if right else (403, "who are you?")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_DELETE = _serve  # noqa: N815 (http.server's names)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_port}")
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", f"http://127.0.0.1:{server.server_port}/")
    yield world
    server.shutdown()
    server.server_close()
    thread.join()


class Steps:
    """A clock that only sleeping moves; `jumps` are added to the wall clock alone, one a sleep."""

    def __init__(self, *jumps: float) -> None:
        self.passed = 0.0
        self.offset = 1000.0
        self.jumps = list(jumps)
        self.slept: list[float] = []

    def time(self) -> float:
        return self.offset + self.passed

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float, /) -> None:
        self.passed += seconds
        self.slept.append(seconds)
        if self.jumps:
            self.offset += self.jumps.pop(0)


def noted(root: Path) -> dict[str, Any]:
    return json.loads((root / "var/lib/tpufleet/ttl.json").read_text())


def test_a_node_deletes_itself_and_knows_its_names_from_the_metadata_server(world: World, tmp_path: Path) -> None:
    ttl.end(ttl.Node(), ttl.Note(tmp_path), Steps())
    assert world.deletes == [NODE]


def test_a_node_of_a_queued_resource_goes_with_it(world: World, tmp_path: Path) -> None:
    queued = "projects/p/locations/us-central1-b/queuedResources/tpu-q"
    world.answers[f"/v2/{NODE}"] = (200, json.dumps({"state": "READY", "queuedResource": queued}))
    ttl.end(ttl.Node(), ttl.Note(tmp_path), Steps())
    assert world.deletes == [f"{queued}?force=true"]


def test_a_node_that_is_being_deleted_is_not_deleted_again(world: World) -> None:
    world.answers[f"/v2/{NODE}"] = (200, '{"state": "DELETING"}')
    assert not ttl.Node().delete()
    del world.answers[f"/v2/{NODE}"]
    assert ttl.Node().delete()
    assert world.deletes == []


TROUBLES = [
    (META + "service-accounts/default/scopes", (404, ""), "it has no service account"),
    (META + "service-accounts/default/scopes", (200, "devstorage.read_only\n"), "not the scope cloud-platform"),
    (META + "service-accounts/default/token", (200, "{}"), "the metadata server gives no token"),
    (META + "service-accounts/default/token", (500, ""), "the metadata server answers 500"),
    (META + "attributes/tpu-env", (404, ""), "the metadata server doesn't name the node"),
    (f"/v2/{NODE}", (403, '{"error": {"message": "Permission \'tpu.nodes.get\' denied"}}'), "403: Permission 'tpu."),
    (f"/v2/{NODE}", (502, "<html>"), "the Cloud TPU API answers 502: Bad Gateway"),
]


class Granting(Steps):
    """After ten minutes `path` answers as it should."""

    def __init__(self, world: World, path: str) -> None:
        super().__init__()
        self._world, self._path = world, path
        self._right = World().answers[path] if path != f"/v2/{NODE}" else (200, made_with(3600))
        world.answers.setdefault(f"/v2/{NODE}", (200, made_with(3600)))

    def sleep(self, seconds: float, /) -> None:
        super().sleep(seconds)
        if self.passed > 600:
            self._world.answers[self._path] = self._right


@pytest.mark.parametrize(("path", "answer", "why"), TROUBLES)
def test_a_node_that_could_not_delete_itself_says_why_until_it_can(
    world: World, tmp_path: Path, path: str, answer: tuple[int, str], why: str
) -> None:
    world.answers[f"/v2/{NODE}"] = (200, made_with(3600))
    world.answers[path] = answer
    said: list[dict[str, Any]] = []

    class Watching(Granting):
        def sleep(self, seconds: float, /) -> None:
            said.append(noted(tmp_path))
            super().sleep(seconds)

    assert ttl.wait(ttl.Node(), ttl.Note(tmp_path), Watching(world, path))
    assert said[0]["can_delete"] is False
    assert why in said[0]["why"]
    assert "secret" not in said[0]["why"]
    assert noted(tmp_path) == {"expires": 4600, "can_delete": True, "why": None}
    assert len([call for call in world.calls if call == f"GET /v2/{NODE}"]) < 40


def test_its_end_is_its_making_and_its_label(world: World, tmp_path: Path) -> None:
    world.answers[f"/v2/{NODE}"] = (200, made_with(8000))
    clock = Steps()
    assert ttl.wait(ttl.Node(), ttl.Note(tmp_path), clock)
    assert clock.time() == pytest.approx(9000)
    assert noted(tmp_path) == {"expires": 9000, "can_delete": True, "why": None}
    assert world.deletes == []


@pytest.mark.parametrize("left", [None, "gone"])
def test_a_node_without_the_label_any_more_is_left_alone(world: World, tmp_path: Path, left: str | None) -> None:
    world.answers[f"/v2/{NODE}"] = (200, made_with(8000))

    class Releasing(Steps):
        def sleep(self, seconds: float, /) -> None:
            super().sleep(seconds)
            if self.passed > 7990:
                world.answers[f"/v2/{NODE}"] = (200, made_with(None)) if left is None else (404, "")

    assert not ttl.wait(ttl.Node(), ttl.Note(tmp_path), Releasing())


def test_more_time_is_given_by_the_label(world: World, tmp_path: Path) -> None:
    world.answers[f"/v2/{NODE}"] = (200, made_with(1000))

    class Kind(Steps):
        def sleep(self, seconds: float, /) -> None:
            super().sleep(seconds)
            if self.passed > 500:
                world.answers[f"/v2/{NODE}"] = (200, made_with(5000))

    clock = Kind()
    assert ttl.wait(ttl.Node(), ttl.Note(tmp_path), clock)
    assert clock.time() == pytest.approx(6000)


def test_a_clock_that_is_stepped_forward_ends_the_wait_soon(world: World, tmp_path: Path) -> None:
    world.answers[f"/v2/{NODE}"] = (200, made_with(3600))
    clock = Steps(0, 0, 3600)
    assert ttl.wait(ttl.Node(), ttl.Note(tmp_path), clock)
    assert clock.passed <= 3 * ttl.LOOK_AT_CLOCK_S
    assert world.deletes == []


def test_a_clock_that_is_stepped_back_makes_it_longer_and_no_drift_adds_up(world: World, tmp_path: Path) -> None:
    world.answers[f"/v2/{NODE}"] = (200, made_with(100))
    clock = Steps(0, -500)
    assert ttl.wait(ttl.Node(), ttl.Note(tmp_path), clock)
    assert clock.time() == pytest.approx(1100)
    assert clock.passed == pytest.approx(600)
    assert world.deletes == []


def test_what_fails_is_tried_again_after_growing_pauses_until_the_node_is_gone(world: World, tmp_path: Path) -> None:
    world.answers[f"/v2/{NODE}"] = (503, '{"error": {"message": "unavailable"}}')

    class Recovering(Steps):
        def sleep(self, seconds: float, /) -> None:
            super().sleep(seconds)
            if len(self.slept) == 12:
                world.answers[f"/v2/{NODE}"] = (200, '{"state": "READY"}')

    clock = Recovering()
    ttl.end(ttl.Node(), ttl.Note(tmp_path), clock)
    assert world.deletes == [NODE]
    assert clock.slept[0] <= ttl.FIRST_PAUSE_S
    assert all(pause <= ttl.LONGEST_PAUSE_S for pause in clock.slept)
    assert "503: unavailable" in noted(tmp_path)["why"]


def run_file(tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    """As the startup script does it: the file alone, by the host's own Python."""
    import os

    environment = {**os.environ, "TPUFLEET_HOST_ROOT": str(tmp_path)}
    text = Path(ttl.__file__).read_bytes()
    return subprocess.run([PYTHON, "-"], input=text, env=environment, capture_output=True, timeout=60, check=False)


def test_the_file_alone_deletes_a_node_whose_time_is_over(world: World, tmp_path: Path) -> None:
    done = run_file(tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert world.deletes == [NODE]


def test_only_worker_zero_deletes(world: World, tmp_path: Path) -> None:
    world.answers[META + "attributes/agent-worker-number"] = (200, "3")
    assert run_file(tmp_path).returncode == 0
    assert world.deletes == []


def test_a_full_disk_keeps_nobody_from_deleting(world: World, tmp_path: Path) -> None:
    (tmp_path / "var").write_text("no directory can be made here")
    world.answers[f"/v2/{NODE}"] = (503, "")

    class Recovering(Steps):
        def sleep(self, seconds: float, /) -> None:
            super().sleep(seconds)
            if not world.deletes:
                world.answers[f"/v2/{NODE}"] = (200, "{}")

    ttl.end(ttl.Node(), ttl.Note(tmp_path), Recovering())
    assert world.deletes == [NODE]


def test_probe_shows_what_the_timer_says(host: Host) -> None:
    assert host.call("probe")["ttl"] is None
    ttl.Note(host.root).write("it has no service account", 1795246504.0)
    assert host.call("probe")["ttl"] == {
        "expires": 1795246504.0,
        "can_delete": False,
        "why": "it has no service account",
    }
