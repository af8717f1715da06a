"""An OpenSSH configuration for the fleet, so that plain `ssh tpu-0`, scp, rsync and editors reach the hosts.

Host keys are verified against the fleet's own known_hosts, by node id and worker (`HostKeyAlias`), so an address
that another machine has now doesn't matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tpufleet.errors import HostFault, StateError
from tpufleet.model import Host
from tpufleet.ssh.trust import alias

HEADER = "# Made by tpufleet; `tpufleet ssh-config` writes it anew.\n"


def config_text(hosts: Sequence[Host], user: str, key_path: Path, known_hosts_path: Path) -> str:
    """A Host block for each host; the one host of a node goes by the node's name as well.

    Raises StateError when a path can't be written in OpenSSH's configuration.
    """
    key, known_hosts = _quoted(key_path), _quoted(known_hosts_path)
    nodes = [host.node for host in hosts]
    blocks = [
        _block(host, [host.name, *([host.node] if nodes.count(host.node) == 1 else [])], user, key, known_hosts)
        for host in hosts
    ]
    return HEADER + "".join(blocks)


def _block(host: Host, names: Sequence[str], user: str, key: str, known_hosts: str) -> str:
    options = {
        "HostName": _address(host),
        "Port": str(host.port),
        "User": user,
        "IdentityFile": key,
        "IdentitiesOnly": "yes",
        "PreferredAuthentications": "publickey",
        "HostKeyAlias": alias(host.identity),
        "HostKeyAlgorithms": "ssh-ed25519",
        "UserKnownHostsFile": known_hosts,
        "GlobalKnownHostsFile": "/dev/null",  # the word `none` is understood by newer versions only
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "ServerAliveInterval": "15",
        "ControlMaster": "no",
        "ControlPath": "none",
    }
    lines = "".join(f"  {name} {value}\n" for name, value in options.items())
    return f"\nHost {' '.join(names)}\n{lines}"


def _address(host: Host) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:][A-Za-z0-9.:-]*", host.address):
        raise HostFault(f"has an impossible address: {host.address!r}", kind="bad-address", where=host.name)
    return host.address


def _quoted(path: Path) -> str:
    """A path as ssh_config(5) reads it: in double quotes, `%` doubled.

    There is no way, in all versions, to write a quote, a backslash or `${`, so those are refused.
    """
    text = str(path.absolute())
    if re.search(r'["\\\x00-\x1f\x7f]|\$\{', text):
        raise StateError(
            "the directory's name holds a character that OpenSSH's configuration can't",
            where=repr(text),
            hint="move the fleet file to a directory with a plain name",
        )
    return '"' + text.replace("%", "%%") + '"'
