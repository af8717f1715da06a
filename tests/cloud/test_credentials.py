"""Google's credentials: looked for at the first call, and every trouble with them in one line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from tpufleet.cloud import tpu_api
from tpufleet.cloud.calls import Caller, answered
from tpufleet.errors import CloudError, CloudUnreachable, PermissionDenied

from .google import Answer, Cut, Fault, Google

LOGIN = "gcloud auth application-default login"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A person without any credentials; the path is where they may get some."""
    for name in ("HOME", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    return tmp_path / "application_default_credentials.json"


@pytest.fixture(scope="module")
def private_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["openssl", "genrsa", "-out", file, "2048"], check=True, capture_output=True)
    return file.read_text()


def test_credentials_are_not_looked_for_before_the_first_call(nobody: Path) -> None:
    assert not nobody.exists()
    cloud = tpu_api.google("p-1234")
    cloud.close()
    with pytest.raises(PermissionDenied, match="no Google credentials can be used") as caught:
        cloud.nodes("us-central1-b")
    assert caught.value.hint == LOGIN
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("text", ["", "{}", "not JSON", '{"type": "tomorrow"}', '{"type": "authorized_user"}'])
def test_credentials_that_cannot_be_read_are_one_line(nobody: Path, text: str) -> None:
    nobody.write_text(text)
    with pytest.raises(PermissionDenied) as caught:
        tpu_api.google("p-1234").nodes("us-central1-b")
    assert caught.value.hint == LOGIN
    assert "\n" not in caught.value.message


def test_a_file_that_is_named_and_missing_is_one_line(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(nobody.parent / "missing.json"))
    with pytest.raises(PermissionDenied, match=r"missing\.json"):
        tpu_api.google("p-1234").nodes("us-central1-b")


def refused(**said: str) -> Answer:
    return Answer(400, json.dumps(said).encode())


@pytest.mark.parametrize(
    ("fault", "meaning", "words"),
    [
        (refused(error="invalid_grant", error_description="Bad Request"), PermissionDenied, "invalid_grant"),
        # pulumi-gcp #479: an organization that wants a new login each day
        (
            refused(error="invalid_grant", error_description="reauth related error (invalid_rapt)"),
            PermissionDenied,
            "invalid_rapt",
        ),
        (
            refused(error="invalid_grant", error_description="Token has been expired or revoked."),
            PermissionDenied,
            "expired",
        ),
        (Cut(after=False), CloudUnreachable, "login does not answer"),
    ],
)
def test_a_login_that_is_refused_or_not_reached_is_one_line(
    google: Google, private_key: str, fault: Fault, meaning: type[CloudError], words: str
) -> None:
    google.always("Token", fault)
    fields: dict[str, Any] = {
        "type": "service_account",
        "client_email": "trainer@p-1234.iam.gserviceaccount.com",
        "private_key": private_key,
        "token_uri": f"{google.url}/token",
    }
    credentials = service_account.Credentials.from_service_account_info(fields, scopes=["x"])
    with pytest.raises(CloudError) as caught:
        answered(lambda: credentials.refresh(Request()), Caller("p-1234"), "us-central1-b")
    assert type(caught.value) is meaning
    assert words in caught.value.message
    assert "\n" not in caught.value.message
