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
python3 - <<'END-OF-TPUFLEETS-TIMER' &
{program}
END-OF-TPUFLEETS-TIMER
"""
# Where there is systemd, a unit does the same (host/autostart.py). Root hands over to whose agent it is.
WAKE = """\
tpufleet="${TPUFLEET_HOST_ROOT-}/var/lib/tpufleet"
if [ -e "$tpufleet/lib/current" ] && [ ! -e "${TPUFLEET_HOST_ROOT-}/etc/systemd/system/tpufleet.service" ]; then
  as=; [ -O "$tpufleet" ] || as="runuser -u $(stat -c %U "$tpufleet") --"
  $as python3 -ES "$tpufleet/lib/current" wake </dev/null &
fi
"""
# As a file of its own, whatever its first line says; bash runs one that has no such line.
HAND_OVER = """\
script=$(mktemp) && base64 --decode >"$script" <<'END-OF-THE-SCRIPT' && chmod 700 "$script" && exec "$script"
{encoded}
END-OF-THE-SCRIPT
"""


def startup_script(user_script: bytes | None, *, keeps_ttl: bool) -> str:
    """The script that keeps the node's ttl if it has one, wakes the agent if the host has one, so that its runs go
    on, and then becomes the person's own, if there is one.

    The timer is `host/ttl.py`, which asks the metadata server and the API for all it needs, so nothing but texts that
    are ours, or are base64, is put into the script. Raises UsageError when it is too large.
    """
    timer = TIMER.format(program=_program()) if keeps_ttl else ""
    script = f"#!/bin/bash\n{timer}{WAKE}{_hand_over(user_script) if user_script else ''}"
    if len(script.encode()) > LARGEST:
        raise UsageError(
            f"the startup script is too large: {len(script.encode()) // 1024} KB as it is sent, metadata holds 256 KB",
            hint="let the startup script fetch what it needs, from a bucket for instance",
        )
    return script


def _program() -> str:
    return resources.files("tpufleet.host").joinpath("ttl.py").read_text("utf-8").rstrip("\n")


def _hand_over(script: bytes) -> str:
    return HAND_OVER.format(encoded=base64.encodebytes(script).decode().rstrip("\n"))
