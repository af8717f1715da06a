"""The startup script of our nodes: root runs it at each boot of each host (metadata key `startup-script`).

https://cloud.google.com/compute/docs/instances/startup-scripts/linux: a metadata value holds at most 256 KB of text.
"""

from __future__ import annotations

import base64
from importlib import resources

from tpufleet.errors import UsageError

LARGEST = 256 * 1024

# In the background and first: the person's script may take long, or never end.
TIMER = """\
python3 - {expires:.0f} <<'END-OF-TPUFLEETS-TIMER' &
{program}
END-OF-TPUFLEETS-TIMER
"""
# As a file of its own, whatever its first line says; bash runs one that has no such line.
HAND_OVER = """\
script=$(mktemp) && base64 --decode >"$script" <<'END-OF-THE-SCRIPT' && chmod 700 "$script" && exec "$script"
{encoded}
END-OF-THE-SCRIPT
"""


def startup_script(expires: float | None, user_script: bytes | None) -> str | None:
    """The script that keeps the node's ttl (`expires`, in Unix time), then becomes the person's own; None for neither.

    The timer is `host/ttl.py`, which asks the metadata server and the API for all else, so nothing but a number and a
    text that is ours, or is base64, is put into the script. Raises UsageError when it is too large.
    """
    script = _joined(expires, user_script)
    if script is not None and len(script.encode()) > LARGEST:
        raise UsageError(
            f"the startup script is too large: {len(script.encode()) // 1024} KB as it is sent, metadata holds 256 KB",
            hint="let the startup script fetch what it needs, from a bucket for instance",
        )
    return script


def _joined(expires: float | None, user_script: bytes | None) -> str | None:
    if expires is None:
        plain = _text(user_script) if user_script else None
        if plain or not user_script:
            return plain
    timer = "" if expires is None else TIMER.format(expires=expires, program=_program())
    return f"#!/bin/bash\n{timer}{_hand_over(user_script) if user_script else ''}"


def _text(script: bytes) -> str | None:
    """The script as text; None for a program, which metadata can't hold as it is."""
    try:
        text = script.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _program() -> str:
    return resources.files("tpufleet.host").joinpath("ttl.py").read_text("utf-8").rstrip("\n")


def _hand_over(script: bytes) -> str:
    return HAND_OVER.format(encoded=base64.encodebytes(script).decode().rstrip("\n"))
