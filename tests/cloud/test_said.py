"""Every text of Google × where in a command it comes: its meaning, its exit code, how often it was asked, what is left.

The command is the shortest that makes a node: list, create, ask for the operation.
"""

from __future__ import annotations

import json

import pytest

from tpufleet import labels
from tpufleet.cloud.port import NodeRequest
from tpufleet.cloud.tpu_api import TpuCloud
from tpufleet.errors import CloudError, CloudUnreachable, PermissionDenied

from .conftest import Steps
from .google import Answer, Google, refusal
from .said import SAID, Said

ZONE = "us-central1-b"
FLEET = {labels.FLEET: "sherlock"}
REQUEST = NodeRequest("tpu-0", ZONE, "v2-8", "tpu-ubuntu2204-base", False, FLEET, {})
CALLS = ("ListNodes", "CreateNode", "GetOperation")  # the first, one in the middle, the last

each_text = pytest.mark.parametrize("said", SAID, ids=[said.id for said in SAID])


def story(cloud: TpuCloud) -> None:
    cloud.nodes(ZONE)
    pending = cloud.create(REQUEST)
    assert pending is None or pending.finished()


def made(google: Google) -> list[str]:
    return [name.rpartition("/")[2] for name in google.nodes]


@pytest.mark.parametrize("call", CALLS)
@each_text
def test_a_text_means_the_same_wherever_it_comes(
    google: Google, cloud: TpuCloud, steps: Steps, said: Said, call: str
) -> None:
    google.always(call, refusal(said))
    with pytest.raises(CloudError) as caught:
        story(cloud)
    error = caught.value
    assert type(error) is said.meaning
    assert error.exit_code == said.exit_code
    assert error.message.startswith(said.text)
    assert error.where in ("tpu-0", ZONE)
    assert error.hint
    if call != "CreateNode" or said.meaning is not CloudUnreachable:  # there the hint is that it isn't known
        assert said.hint in error.hint
    assert bool(steps.slept) is said.retried
    if not said.retried:
        assert google.calls[call] == (3 if said.http_status == 401 else 1)  # a 401 is answered by a new token, twice
    assert {node.name for node in cloud.nodes(ZONE)} == set(made(google)) if call != "ListNodes" else not google.nodes
    google.always(call, None)
    story(cloud)
    assert made(google) == ["tpu-0"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("said", [said for said in SAID if said.retried], ids=lambda said: said.id)
def test_what_passes_is_asked_again_and_makes_one_node(google: Google, cloud: TpuCloud, said: Said, call: str) -> None:
    google.next(call, refusal(said))
    story(cloud)
    assert google.calls[call] == 2
    assert made(google) == ["tpu-0"]


@each_text
def test_an_operation_that_ends_with_a_text_means_the_same(google: Google, cloud: TpuCloud, said: Said) -> None:
    google.ends_with = {"code": said.code, "message": said.text, "details": list(said.details)}
    with pytest.raises(CloudError) as caught:
        story(cloud)
    assert (type(caught.value), caught.value.exit_code) == (said.meaning, said.exit_code)
    assert caught.value.message.startswith(said.text)
    assert google.calls["GetOperation"] == 1
    assert made(google) == []


def test_what_google_asks_to_wait_is_waited(google: Google, cloud: TpuCloud, steps: Steps) -> None:
    busy = next(said for said in SAID if said.retried)
    google.next("ListNodes", refusal(busy, {"Retry-After": "7"}))
    cloud.nodes(ZONE)
    assert steps.slept == [7.25]  # and half of the first pause, as this chance has it


def test_a_wait_beyond_all_patience_is_told_at_once(google: Google, cloud: TpuCloud, steps: Steps) -> None:
    busy = next(said for said in SAID if said.retried)
    google.next("ListNodes", refusal(busy, {"Retry-After": "3600"}))
    with pytest.raises(CloudError) as caught:
        cloud.nodes(ZONE)
    assert caught.value.retry_after_s == 3600
    assert steps.slept == []


@pytest.mark.parametrize(
    ("answer", "words", "calls"),
    [
        (Answer(502, b"<html><h1>502 Bad Gateway</h1></html>", "text/html"), "502 Bad Gateway", None),
        (Answer(200, b"<html>Please log in to the Wi-Fi</html>", "text/html"), "not the Cloud TPU API's", None),
        (Answer(200, b"\xff\xfe\x00", "text/html"), "not the Cloud TPU API's", None),
        (Answer(403, b"<html>blocked</html>", "text/html"), "403 Forbidden", 1),
        (Answer(407, b"", "text/html"), "407 Proxy Authentication Required", 1),
        (Answer(400, b'["no", "object"]'), "400 Bad Request", 1),
        (Answer(400, b'{"error": "invalid_grant"}'), "400 Bad Request", 1),
        (Answer(401, b'[{"error": 1}]'), "401 Unauthorized", 3),
        (Answer(429, b'{"error": {"message": null, "details": "none"}}'), "Too Many Requests", None),
        (Answer(500, b""), "500 Internal Server Error", None),
    ],
)
def test_what_is_no_answer_of_google_s_is_one_line_too(
    google: Google, cloud: TpuCloud, answer: Answer, words: str, calls: int | None
) -> None:
    google.always("ListNodes", answer)
    with pytest.raises(CloudError) as caught:
        story(cloud)
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert google.calls["ListNodes"] == calls if calls else google.calls["ListNodes"] > 1


def test_a_permission_that_only_the_detail_names_is_named(google: Google, cloud: TpuCloud) -> None:
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "IAM_PERMISSION_DENIED",
        "metadata": {"permission": "compute.networks.use"},
    }
    error = {"code": 403, "status": "PERMISSION_DENIED", "message": "No.", "details": [detail, "nonsense", {}]}
    google.always("ListNodes", Answer(403, json.dumps({"error": error}).encode()))
    with pytest.raises(PermissionDenied) as caught:
        cloud.nodes(ZONE)
    assert "roles/compute.networkUser" in (caught.value.hint or "")


def test_a_detail_never_puts_more_than_a_word_into_a_command(google: Google, cloud: TpuCloud) -> None:
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "metadata": {"service": "x; rm -rf ~"},
    }
    error = {"code": 403, "status": "PERMISSION_DENIED", "message": "Off.", "details": [detail]}
    google.always("ListNodes", Answer(403, json.dumps({"error": error}).encode()))
    with pytest.raises(PermissionDenied) as caught:
        cloud.nodes(ZONE)
    assert caught.value.hint == "gcloud services enable tpu.googleapis.com --project=p-1234"
