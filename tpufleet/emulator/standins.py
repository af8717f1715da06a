"""Programs of a real VM that would act on the whole machine, replaced on an emulated host's PATH.

Emulated accounts don't exist in the machine's /etc/passwd and emulated root is the person who started the emulator.
Who has come in by an account of the host's own, and not as the operator, has TPUFLEET_PERSON in the environment: these
programs tell them apart by that, and whoever takes it away has the operator's rights. It is a rehearsal, no prison.
"""

from __future__ import annotations

from pathlib import Path

from tpufleet.emulator import standins_accounts, standins_pkill

SUDO = """#!/bin/sh
# Stand-in for sudo on an emulated host: takes sudo's options and runs the command as it is, for the operator.
[ -z "${TPUFLEET_PERSON-}" ] || { echo "sudo: a password is required" >&2; exit 1; }
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    -u|-g|-h|-p|-C|-T|-r|-t|--user|--group|--host|--prompt) shift; [ $# -gt 0 ] && shift ;;
    -v|-k|-K|-l|--validate|--list) exit 0 ;;
    --non-interactive|--preserve-env*|--set-home|--stdin|--user=*|--group=*) shift ;;
    -[nEHSbi]|-[nEHSbi][nEHSbi]*) shift ;;
    -*) echo "sudo (stand-in): unknown option $1" >&2; exit 1 ;;
    [A-Za-z_]*=*) export "$1"; shift ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { echo "sudo (stand-in): no command" >&2; exit 1; }
exec "$@"
"""

ID = """#!/bin/sh
# Stand-in for id on an emulated host: the accounts are the host's own; the operator's numbers are the real id's.
real() { PATH=/usr/bin:/bin; exec id "$@"; }
letters= of=${TPUFLEET_PERSON-}
for word in "$@"; do
  case $word in --user) word=-u ;; --group) word=-g ;; --groups) word=-G ;; --name) word=-n ;; --real) word=-r ;; esac
  case $word in
    -*[!ugGnr]*) real "$@" ;;
    -*) letters=$letters$word ;;
    *) of=$word ;;
  esac
done
what= names=
case $letters in *u*) what=u ;; *g*) what=g ;; *G*) what=G ;; esac
case $letters in *n*) names=1 ;; esac
if [ -z "$of" ]; then
  [ "$what$names" = u1 ] || real "$@"
  printf '%s\\n' "$USER"
  exit
fi
while IFS=: read -r name _ uid gid _; do
  [ "$name" = "$of" ] || [ "$uid" = "$of" ] || continue
  group=$gid
  while IFS=: read -r title _ number _; do [ "$number" != "$gid" ] || { group=$title; break; }; done \\
    < "$TPUFLEET_HOST_ROOT/etc/group"
  case $what$names in
    u) echo "$uid" ;; u1) echo "$name" ;; g|G) echo "$gid" ;; g1|G1) echo "$group" ;;
    *) echo "uid=$uid($name) gid=$gid($group) groups=$gid($group)" ;;
  esac
  exit
done < "$TPUFLEET_HOST_ROOT/etc/passwd"
echo "id: '$of': no such user" >&2
exit 1
"""

WHOAMI = """#!/bin/sh
printf '%s\\n' "$USER"
"""

HOSTNAME = """#!/bin/sh
# Stand-in for hostname on an emulated host; it can be asked, not set.
exec cat "$TPUFLEET_HOST_ROOT/etc/hostname"
"""

PYTHON = "#!/usr/bin/env -S python3 -ES\n"
USERADD = USERMOD = PYTHON + Path(standins_accounts.__file__).read_text()
PKILL = PYTHON + Path(standins_pkill.__file__).read_text()

STANDINS = {
    "sudo": SUDO,
    "id": ID,
    "whoami": WHOAMI,
    "hostname": HOSTNAME,
    "useradd": USERADD,
    "usermod": USERMOD,
    "pkill": PKILL,
}

# What useradd puts into a home. The machine's own /etc/profile and /etc/bash.bashrc were read before.
SKELETON = {
    ".profile": """# Read by login shells.
. "$TPUFLEET_HOST_ROOT/etc/profile"
if [ -n "$BASH_VERSION" ] && [ -f "$HOME/.bashrc" ]; then
  . "$HOME/.bashrc"
fi
""",
    ".bashrc": """# Read by interactive shells, and by those that sshd starts for a command.
case $- in
  *i*) ;;
  *) return ;;
esac
PS1='$USER@$(hostname):\\w$ '
""",
}


def install(root: Path) -> None:
    """Writes the stand-ins and the skeleton of a home below a host's root."""
    for name, text in STANDINS.items():
        target = root / "usr/local/bin" / name
        target.write_text(text)
        target.chmod(0o755)
    for name, text in SKELETON.items():
        (root / "etc/skel" / name).write_text(text)
