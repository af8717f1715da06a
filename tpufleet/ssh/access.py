"""How the hosts are entered: as whom, with whose key, through which jump host."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from tpufleet.errors import UsageError
from tpufleet.model import Host, Provider, Spec
from tpufleet.paths import LocalPaths
from tpufleet.ssh.keys import ensure_key, public_line

USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")  # OpenSSH's own defaults, the best first


@dataclass(frozen=True)
class Access:
    """`key` is the private key's file: the person's own, or else the fleet's, which is made on first use.

    `given`: somebody else gave access to the hosts, so tpufleet can't give itself any.
    """

    user: str
    key: Path
    own_key: bool = False
    jump: str | None = None
    given: bool = False

    def login(self, host: Host) -> str:
        """The account on `host`."""
        return host.user or self.user

    def key_line(self) -> str:
        """The public key's line, for a node's metadata. Raises UsageError or StateError when there is none."""
        return public_line(self.key) if self.own_key else ensure_key(self.key)

    def attempt(self, host: Host) -> str:
        """The plain `ssh` that a person would try."""
        jump = ["-J", self.jump] if self.jump else []
        port = ["-p", str(host.port)] if host.port != 22 else []
        return shlex.join(["ssh", *jump, *port, "-i", str(self.key), f"{self.login(host)}@{host.address}"])


def access_to(spec: Spec, paths: LocalPaths) -> Access:
    """What the fleet file says of access; raises UsageError when the key that it means isn't there."""
    given = spec.cloud.provider is Provider.INVENTORY
    if spec.ssh.key is not None:
        key = _own(paths.directory, spec.ssh.key)
    elif given:
        key = _usual()
    else:
        return Access(spec.ssh.user, paths.key, jump=spec.ssh.jump)
    return Access(spec.ssh.user, key, own_key=True, jump=spec.ssh.jump, given=given)


def _own(directory: Path, written: str) -> Path:
    """The file that `ssh.key` means: `~` is the person's home, else it is relative to the fleet file."""
    try:
        path = directory / Path(written).expanduser()
    except RuntimeError as error:
        raise UsageError(f"ssh.key names nobody's home: {error}", where=written) from error
    if not path.is_file():
        raise UsageError("there is no key here, which ssh.key in the fleet file names", where=str(path))
    return path


def _usual() -> Path:
    there = [path for name in USUAL_KEYS if (path := Path.home() / ".ssh" / name).is_file()]
    if not there:
        raise UsageError(
            f"no key to reach the hosts with: there is none of {', '.join(USUAL_KEYS)} in ~/.ssh",
            hint="name the private key that was given access in the fleet file: ssh: {key: ~/path}",
        )
    return there[0]
