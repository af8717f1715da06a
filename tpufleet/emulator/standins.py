"""Programs of a real VM that would act on the whole machine, replaced on an emulated host's PATH.

Emulated accounts don't exist in /etc/passwd and emulated root is the person who started the emulator.
"""

from __future__ import annotations

from pathlib import Path

SUDO = """#!/bin/sh
# Stand-in for sudo on an emulated host: takes sudo's options and runs the command as it is.
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
# Stand-in for id on an emulated host: the name of the emulated account; everything else is the real id's.
case "$*" in
  -un|-nu|"-u -n"|"-n -u"|"--user --name") printf '%s\\n' "$USER"; exit 0 ;;
esac
PATH=/usr/bin:/bin
exec id "$@"
"""

WHOAMI = """#!/bin/sh
printf '%s\\n' "$USER"
"""

HOSTNAME = """#!/bin/sh
# Stand-in for hostname on an emulated host; it can be asked, not set.
exec cat "$TPUFLEET_HOST_ROOT/etc/hostname"
"""

STANDINS = {"sudo": SUDO, "id": ID, "whoami": WHOAMI, "hostname": HOSTNAME}


def install(directory: Path) -> None:
    """Writes the stand-ins into `directory` (a host's usr/local/bin)."""
    for name, text in STANDINS.items():
        target = directory / name
        target.write_text(text)
        target.chmod(0o755)
