"""The environment that points Google's tools and libraries at a running emulator.

Measured with gcloud 528 and google-auth 2.62: gcloud needs a trailing slash on both endpoints and no credentials;
`google.auth.default()` finds a metadata server at the emulator's own address, and with it a token and the project.
"""

from __future__ import annotations

from pathlib import Path


def environment(url: str, project: str, directory: Path) -> dict[str, str]:
    """Variables for a shell or a child process; `url` is the API's (http://127.0.0.1:PORT).

    A person's own credentials must not be found by what is rehearsed: gcloud's configuration is an empty one in the
    emulator's `directory`, and no file of credentials is named.
    """
    address = url.removeprefix("http://")
    return {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CONFIG": str(directory.absolute() / "gcloud"),
        "GOOGLE_APPLICATION_CREDENTIALS": "",
        "GOOGLE_CLOUD_PROJECT": project,
        "GCE_METADATA_HOST": address,
        "GCE_METADATA_IP": address,
    }
