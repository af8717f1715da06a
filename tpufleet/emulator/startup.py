"""The `startup-script` of a node's metadata: root runs it at each boot of each host.

Source: https://cloud.google.com/compute/docs/instances/startup-scripts/linux. Root is, here, the person who started
the emulator.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tpufleet.emulator.commands import watch_exit

log = logging.getLogger(__name__)

ATTRIBUTE = "/computeMetadata/v1/instance/attributes/startup-script"
LOG = "var/log/startup-script.log"


class Machine(Protocol):
    """What a script needs of its host."""

    def environment(self, user: str, connection: str, wished: Mapping[str, str]) -> dict[str, str]: ...

    def argv(self, wanted: Sequence[str]) -> list[str]:
        """The command as it has to be started there."""
        ...

    def inside(self, path: Path) -> Path:
        """A file of the host, as it is called there."""
        ...

    def started(self, process: subprocess.Popen[bytes]) -> None: ...

    def ended(self, process: subprocess.Popen[bytes]) -> None: ...


def run(machine: Machine, root: Path, script: str) -> None:
    """Starts `script` on the host with the directory `root`, and returns at once.

    As Google's guest agent, it writes the script aside and lets bash start it, so that its own first line says what
    runs it. Output goes to LOG below `root`, behind that of earlier boots. The processes are the host's and die with
    it; where the script can't be written or started, the host is up all the same and the emulator's log says why.
    """
    place = root / "tmp/metadata-scripts"
    try:
        place.mkdir(mode=0o700)
        file = place / "startup-script"
        file.write_text(script)
        file.chmod(0o700)
        (root / LOG).parent.mkdir(parents=True, exist_ok=True)
        with (root / LOG).open("ab") as output:
            process = subprocess.Popen(
                machine.argv(["/bin/bash", "-c", str(machine.inside(file))]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=root,
                env=machine.environment("root", "", {}),
                umask=0o022,
                start_new_session=True,
            )
    except OSError as error:
        log.warning("the startup script of %s does not start: %s", root.parent.name, error)
        return
    machine.started(process)
    watch_exit(process, lambda status: _ended(machine, root, process, status))


def _ended(machine: Machine, root: Path, process: subprocess.Popen[bytes], status: int) -> None:
    machine.ended(process)
    log.info("the startup script of %s has ended with status %d", root.parent.name, status)
