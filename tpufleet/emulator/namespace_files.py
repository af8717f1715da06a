"""What a namespace host finds in its /etc and /usr that isn't the machine's: accounts, sshd's settings, variables.

Written into the host's upper layers while it is down. Of the machine's accounts a host has those of the system, so that
the people of the machine are nobody there.
"""

from __future__ import annotations

import grp
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

SUDOERS = "google-sudoers"  # as Google's guest agent calls it
KEYS = "/var/lib/google/keys"  # a file for each user of the metadata's `ssh-keys`
HOST_KEY = "/var/lib/google/ssh_host_ed25519_key"
SSHD_PID = "run/sshd.pid"
FIRST_PERSON, NOBODY = 1000, 65534

SSHD_CONFIG = f"""\
ListenAddress {{address}}:{{port}}
HostKey {HOST_KEY}
PidFile /{SSHD_PID}
AuthorizedKeysFile {KEYS}/%u .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
UsePAM yes
UseDNS no
PrintMotd no
X11Forwarding no
AcceptEnv LANG LC_*
SetEnv {{variables}}
Subsystem sftp internal-sftp
"""
SUDOERS_LINE = f"%{SUDOERS} ALL=(ALL:ALL) NOPASSWD:ALL\n"

# PAM lets members of the group become anybody without a password; everybody else is asked for one that nobody has.
SU_LINE = f"auth sufficient pam_wheel.so use_uid trust group={SUDOERS}\n"
SUDO = f"""\
#!/bin/sh
# Stand-in for sudo on a host whose machine has none: su does the work, and who may is in the group {SUDOERS}.
user=root
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    -u|--user) user=$2; shift 2 ;;
    --user=*) user=${{1#*=}}; shift ;;
    -v|--validate|-l|--list) set -- true ;;
    -n|-E|-H|-S|-k|-K|-nE|-nH|--non-interactive|--preserve-env*|--set-home|--stdin) shift ;;
    -*) echo "sudo (stand-in): unknown option $1" >&2; exit 1 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || {{ echo "sudo (stand-in): no command" >&2; exit 1; }}
case " $(id -un) $(id -Gn) " in
  " root "*|*" {SUDOERS} "*) ;;
  *) echo "sudo: a password is required" >&2; exit 1 ;;
esac
export SUDO_USER="$(id -un)" SUDO_UID="$(id -u)"
exec su -s /bin/sh -c 'user=$1; shift; home=$(getent passwd "$user" | cut -d: -f6)
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  exec runuser -u "$user" -- env -i HOME="$home" USER="$user" LOGNAME="$user" SHELL=/bin/bash PATH="$PATH" \\
    LANG="${{LANG:-C.UTF-8}}" TERM="${{TERM:-dumb}}" SUDO_USER="$SUDO_USER" SUDO_UID="$SUDO_UID" "$@"' \\
  -- root sh "$user" "$@"
"""


def lay_out(layers: Path, name: str, sshd: tuple[str, int], variables: Mapping[str, str]) -> None:
    """Below `layers`, for the host `name` whose `sshd` is at that address and port; sessions have `variables`."""
    address, port = sshd
    etc = layers / "etc"
    for below in ("ssh", "profile.d", "sudoers.d", "pam.d"):
        (etc / below).mkdir(parents=True, exist_ok=True)
    if not (etc / "passwd").exists():
        _accounts(etc)
    settings = " ".join(f'"{name}={value}"' for name, value in variables.items())
    (etc / "ssh/sshd_config").write_text(SSHD_CONFIG.format(address=address, port=port, variables=settings))
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    (etc / "profile.d/tpufleet-host.sh").write_text(exports)
    (etc / "hostname").write_text(f"{name}\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n{_machines('/etc/hosts')}")
    (etc / "resolv.conf").unlink(missing_ok=True)
    (etc / "resolv.conf").write_text(_machines("/etc/resolv.conf"))  # a container's is mounted, so in no layer
    _sudo(layers)


def _accounts(etc: Path) -> None:
    """The system's own, and the group of those who may use sudo; root has no password."""
    people = _names("/etc/passwd", keeps=False)
    kept = {"passwd": _names("/etc/passwd"), "group": _names("/etc/group")}
    kept |= {"shadow": kept["passwd"], "gshadow": kept["group"]}
    texts = {
        file: "".join(f"{line}\n" for line in _machines(f"/etc/{file}").splitlines() if line.partition(":")[0] in names)
        for file, names in kept.items()
    }
    taken = {group.gr_gid for group in grp.getgrall()}
    free = next(number for number in range(FIRST_PERSON - 1, 0, -1) if number not in taken)
    texts["group"] = _without_members(texts["group"], people) + f"{SUDOERS}:x:{free}:\n"
    texts["gshadow"] += f"{SUDOERS}:!::\n"
    texts["shadow"] = "".join(
        f"root:*:{line.split(':', 2)[2]}" if line.startswith("root:") else line
        for line in texts["shadow"].splitlines(keepends=True)
    )
    for file, text in texts.items():
        (etc / file).touch(0o640 if "shadow" in file else 0o644)
        (etc / file).write_text(text)
    shutil.chown(etc / "shadow", group="shadow")
    shutil.chown(etc / "gshadow", group="shadow")


def _names(file: str, *, keeps: bool = True) -> set[str]:
    """The accounts or groups of `file` that are the system's (or those that are not)."""
    lines = [line.split(":") for line in _machines(file).splitlines() if line.count(":") > 2]
    return {fields[0] for fields in lines if (int(fields[2]) < FIRST_PERSON or int(fields[2]) == NOBODY) is keeps}


def _without_members(groups: str, people: set[str]) -> str:
    lines = (line.rsplit(":", 1) for line in groups.splitlines())
    return "".join(
        f"{line}:{','.join(one for one in members.split(',') if one not in people)}\n" for line, members in lines
    )


def _sudo(layers: Path) -> None:
    """Sudo without a password for the operator: the machine's own, or a stand-in."""
    rule = layers / "etc/sudoers.d/google_sudoers"
    rule.write_text(SUDOERS_LINE)
    rule.chmod(0o440)
    if shutil.which("sudo"):
        return
    (layers / "etc/pam.d/su").write_text(SU_LINE + _machines("/etc/pam.d/su"))
    standin = layers / "usr/local/bin/sudo"
    standin.parent.mkdir(parents=True, exist_ok=True)
    standin.write_text(SUDO)
    standin.chmod(0o755)


def _machines(file: str) -> str:
    """A file of the machine's; empty where there is none."""
    path = Path(file)
    return path.read_text() if path.exists() else ""
