"""Going on by itself after a reboot: a systemd unit where there is systemd, else the node's startup script.

Either runs the verb `wake` of the agent that `lib/current` points at, in the environment that the last `enqueue` came
with: at boot nobody has logged in whose environment it could be.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
from pathlib import Path

from tpufleet.host import files, people, queue, store
from tpufleet.host.daemons import LIBRARY
from tpufleet.host.environment import FROM_HOST
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places, own_environment
from tpufleet.restart import FINAL_STATES

BOOTED = Path("/run/systemd/system")  # sd_booted(3)
INSTALL = 'cat >"$1.new" && mv "$1.new" "$1" && systemctl daemon-reload && systemctl enable --quiet "${1##*/}"'

# The trainings live in the unit's group: it must not end with `wake`, nor take them all down when one of them needs
# too much memory. libtpu locks memory for its transfers, which services may do little of by default.
UNIT = """\
[Unit]
Description=tpufleet goes on with the runs that a reboot broke off
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
User={user}
ExecStart=/usr/bin/env python3 -ES {agent} wake
KillMode=process
OOMPolicy=continue
LimitMEMLOCK=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"""


def prepare(places: Places) -> None:
    """Sees to it that what was queued here is woken at boot. Without sudo a host waits for the next probe instead."""
    if not prepare_unit(places, pwd.getpwuid(os.getuid()).pw_name):
        return
    environment = {name: os.environ[name] for name in FROM_HOST if name in os.environ}
    if files.read_json(places.environment) != environment:
        files.write_json(places.environment, environment)


def prepare_unit(places: Places, user: str) -> bool:
    """Sees to it that `wake` is called at boot, as `user`; False when we are no agent that could be."""
    if not (LIBRARY / "__main__.py").exists():
        return False  # not shipped: a checkout
    _point(places.current, LIBRARY)
    if places.root == Path("/") and BOOTED.is_dir():
        install(places.unit, unit(places, user))
    return True


def wake(places: Places, _request: JsonObject) -> JsonObject:
    """The verb: lets root see to people's seats first if there are any, then starts the queue's worker if there is work
    for it."""
    if people.read(places) is not None:
        _keep_people()
    os.environ.update(files.read_json(places.environment) or {})
    unfinished = any(state.state not in FINAL_STATES for state in store.all_states(places))
    if unfinished:
        queue.wake(places)
    return {"woken": unfinished}


def _keep_people() -> None:
    """The verb `keep`, by sudo. It must not keep the queue from its work: the next apply tells what is wrong."""
    subprocess.run(
        ["sudo", "-n", "env", "-u", "LD_PRELOAD", sys.executable, "-ES", str(LIBRARY), "keep"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=own_environment(),
        check=False,
    )


def unit(places: Places, user: str) -> str:
    return UNIT.format(user=user, agent=places.current)


def install(path: Path, text: str) -> None:
    """Puts the unit there and enables it, unless it is there as it should be."""
    with contextlib.suppress(OSError):
        if path.read_text() == text:
            return
    subprocess.run(
        ["sudo", "-n", "sh", "-c", INSTALL, "sh", str(path)],
        input=text.encode(),
        capture_output=True,
        env=own_environment(),
        check=False,
    )


def _point(link: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        if link.readlink() == target:
            return
    link.parent.mkdir(exist_ok=True)
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.symlink_to(target)
    aside.replace(link)
