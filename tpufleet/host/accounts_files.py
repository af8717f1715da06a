"""What root keeps for all accounts together, below /etc/tpufleet and in /usr/local/bin. Nobody else can change it, and
homes hold but a line that reads it: so a seat or a host that moves touches no home.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tpufleet.host import files
from tpufleet.host.accounts_request import FleetHost
from tpufleet.host.chips import chips_of
from tpufleet.host.daemons import LIBRARY
from tpufleet.host.people import Known, Person
from tpufleet.host.pin import Pin, pin_to_chips, pin_to_cpu
from tpufleet.host.places import Places

TOOLS = {"chips": "chips.py", "on-chip": "on_chip.py"}
# pam_motd shows /etc/motd.d, on Ubuntu and Debian (pam_motd(8): motd_dir), at each login on a terminal.
MESSAGE = """\

  This is {host} of the fleet {fleet}. Chips are shared by seats:

    chips                   who is on which chip
    on-chip -- COMMAND      runs COMMAND on the chip of your seat
    on-chip cpu -- COMMAND  runs it without a chip
"""
SHELL = """\
# Made by tpufleet, for accounts of people: what a program sees that was started without on-chip.
# Without it each would take chip 0, whoever sits there. A run (on-chip) has its own, which stay as they are.
if [ -z "${{TPUFLEET_RUN_ID-}}" ]; then
  case "${{USER-}}" in
{cases}  esac
fi
"""
SSH_HOST = """\
Host {name}
  HostName {address}
  Port {port}
  HostKeyAlias {name}
  UserKnownHostsFile {known_hosts}
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""
SAFE_FOR_CLONES = "[safe]\n\tdirectory = *\n"  # git takes a repository of the operator's for dubious otherwise


def write(places: Places, known: Known, hosts: Sequence[FleetHost]) -> None:
    """Puts all of them there, as far as they aren't as they should be."""
    known_hosts = places.settings / "known_hosts"
    texts = {
        places.settings / "shell.sh": shell(places, known),
        places.settings / "gitconfig": SAFE_FOR_CLONES,
        known_hosts: "".join(f"{host.name} {host.key}\n" for host in hosts),
        places.settings / "ssh_config": "".join(
            SSH_HOST.format(**host._asdict(), known_hosts=known_hosts) for host in hosts
        ),
        places.root / "etc/motd.d/tpufleet": MESSAGE.format(host=known.host, fleet=known.fleet),
    }
    for path, text in texts.items():
        _put(path, text.encode(), 0o644)
    for name, source in TOOLS.items():
        program = LIBRARY / "tpufleet/host/tools" / source
        if program.exists():
            _put(places.root / "usr/local/bin" / name, program.read_bytes(), 0o755)


def shell(places: Places, known: Known) -> str:
    """The variables that pin each person here to their seat, and to no chip who has none, as shell lines."""
    here = [known.people[name] for name in sorted(known.people) if known.people[name].is_here]
    return SHELL.format(cases="".join(_case(person.name, _pin(places, known, person)) for person in here))


def _pin(places: Places, known: Known, person: Person) -> Pin:
    if not person.seat:
        return pin_to_cpu()
    node = known.host.rpartition("-w")[0]
    workers = [host for host in known.hosts if str(host.get("name")).rpartition("-w")[0] == node]
    logs = places.home(person.name) / ".tpu_logs"
    return pin_to_chips(person.seat, len(chips_of(places)), logs, multi_host=len(workers) > 1)


def _case(name: str, pin: Pin) -> str:
    exports = "".join(f" {key}={shlex.quote(value)}" for key, value in sorted(pin.set.items()))
    return f"  {name})\n    unset {' '.join(pin.unset)}\n    export{exports} ;;\n"


def _put(path: Path, data: bytes, mode: int) -> None:
    """A file of root's in a directory of root's."""
    try:
        if path.read_bytes() == data and path.stat().st_mode & 0o777 == mode and not path.is_symlink():
            return
    except FileNotFoundError:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    files.write_atomic(path, data, mode)
