"""An OpenSSH configuration for the fleet, so that plain `ssh tpu-0`, scp, rsync and editors reach the hosts.

Host keys are verified against the fleet's own known_hosts, by node id and worker (`HostKeyAlias`), so an address
that another machine has now doesn't matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tpufleet.errors import HostFault, StateError
from tpufleet.model import Host
from tpufleet.publickey import ED25519, signature_algorithms
from tpufleet.ssh.access import Access
from tpufleet.ssh.jump import destination
from tpufleet.ssh.trust import Trust, alias

HEADER = "# Made by tpufleet; `tpufleet ssh-config` writes it anew.\n"


def config_text(hosts: Sequence[Host], access: Access, trust: Trust, known_hosts_path: Path) -> str:
    """A Host block for each host; the one host of a node goes by the node's name as well.

    Raises StateError when a path can't be written in OpenSSH's configuration.
    """
    everywhere = {
        "IdentityFile": _quoted(access.key),
        "IdentitiesOnly": "yes",
        "PreferredAuthentications": "publickey",
        "UserKnownHostsFile": _quoted(known_hosts_path),
        "GlobalKnownHostsFile": "/dev/null",  # the word `none` is understood by newer versions only
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "ServerAliveInterval": "15",
        "ControlMaster": "no",
        "ControlPath": "none",
    }
    if access.jump:
        # not ProxyJump: that one's ssh would read this file, where the person's own names for hosts aren't
        everywhere["ProxyCommand"] = f"ssh -W [%h]:%p -- {destination(access.jump)}"
    nodes = [host.node for host in hosts]
    return HEADER + "".join(
        _block(
            [host.name, *([host.node] if nodes.count(host.node) == 1 else [])],
            {**_own_options(host, access, trust), **everywhere},
        )
        for host in hosts
    )


def _own_options(host: Host, access: Access, trust: Trust) -> dict[str, str]:
    pinned = trust.get(host.identity)
    return {
        "HostName": _address(host),
        "Port": str(host.port),
        "User": access.login(host),
        "HostKeyAlias": alias(host.identity),
        "HostKeyAlgorithms": ",".join(signature_algorithms(pinned)) if pinned else ED25519,
    }


def _block(names: Sequence[str], options: Mapping[str, str]) -> str:
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
