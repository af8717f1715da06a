"""Names and addresses as validated strings: whoever holds one may put it into a path, a label or an argument list.

Each class is a `str` whose constructor raises ValueError with a sentence for the person who wrote it. None of them
makes a string safe for a shell: shells get lists that are quoted word by word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Self


class Name(str):
    """A string that matches `pattern` whole; `says` completes "… must be"."""

    __slots__ = ()
    pattern: ClassVar[re.Pattern[str]]
    says: ClassVar[str]

    def __new__(cls, value: object) -> Self:
        if not isinstance(value, str):
            raise ValueError(f"must be text, not {type(value).__name__}")
        if not cls.pattern.fullmatch(value):
            raise ValueError(f"{shown(value)} must be {cls.says}")
        return super().__new__(cls, value)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: Callable[[object], Any]) -> Any:
        # pydantic's own protocol for custom types, imported late: names cost nothing where pydantic isn't used
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls)


class FleetName(Name):
    """The fleet: a Google label value and a prefix, so lower case, at most 40 characters."""

    __slots__ = ()
    pattern = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
    says = "lower-case letters, digits and hyphens, beginning with a letter, at most 40 characters"


class NodeName(Name):
    """A Cloud TPU node id, or the pool it is counted in."""

    __slots__ = ()
    pattern = re.compile(r"[a-z](?:[a-z0-9-]{0,58}[a-z0-9])?")
    says = "lower-case letters, digits and hyphens, beginning with a letter, at most 60 characters"


class HostName(Name):
    """A host: its node's name and its worker index, `tpu-0-w0`."""

    __slots__ = ()
    pattern = re.compile(r"(?P<node>[a-z](?:[a-z0-9-]{0,58}[a-z0-9])?)-w(?P<worker>0|[1-9][0-9]{0,4})")
    says = "a node's name and a worker's number, such as tpu-0-w0"


class JobName(Name):
    __slots__ = ()
    pattern = re.compile(r"[a-z][a-z0-9_-]{0,39}")
    says = "lower-case letters, digits, '-' and '_', beginning with a letter, at most 40 characters"


class RunId(Name):
    """A run's id; a safe file name on every host."""

    __slots__ = ()
    pattern = re.compile(r"[a-z0-9][a-z0-9._=+-]{0,127}")
    says = "lower-case letters, digits and . _ = + -, at most 128 characters"


class ParamName(Name):
    """A name of the grid, of an environment variable's pattern or of a metric: an identifier."""

    __slots__ = ()
    pattern = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
    says = "letters, digits and '_', not beginning with a digit, at most 64 characters"


# The accounts of the TPU VMs' image (Ubuntu 22.04's /etc/passwd), and groups whose name no account must have: useradd
# makes a group for each account, and some of these mean root.
_ACCOUNTS = (
    "root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody _apt messagebus "
    "syslog uuidd tcpdump tss landscape sshd pollinate ubuntu lxd chrony _chrony usbmux dnsmasq"
)
_GROUPS = (
    "adm admin audio cdrom crontab dialout dip disk docker fax floppy input kmem kvm netdev nogroup operator plugdev "
    "render sasl sgx shadow src ssh ssl-cert staff sudo tape tty users utmp video voice wheel"
)
SYSTEM_ACCOUNTS: frozenset[str] = frozenset(_ACCOUNTS.split())
SYSTEM_GROUPS: frozenset[str] = frozenset(_GROUPS.split())


class UserName(Name):
    """A Linux account that people log in to; never one of the system's own."""

    __slots__ = ()
    pattern = re.compile(rf"(?!(?:{'|'.join(sorted(SYSTEM_ACCOUNTS))})$)(?!systemd-)[a-z_][a-z0-9_-]{{0,31}}")
    says = "a plain Linux user name (lower-case letters, digits, '-', '_'), not one of the system's own"


class PersonName(UserName):
    """The account of somebody who has a key: no group's name either, and none that reads like one of these."""

    __slots__ = ()

    def __new__(cls, value: object) -> Self:
        name = super().__new__(cls, value)
        if name.startswith("google") or look(name) in LOOKS_OF_THE_SYSTEM:
            raise ValueError(f"{shown(name)} must be {cls.says}, and must not look like one")
        return name


def look(name: str) -> str:
    """What `name` looks like at a glance: names of one look are not told apart by a person in a hurry."""
    return name.strip("-_").replace("_", "-").translate(str.maketrans("01i5", "olls"))


LOOKS_OF_THE_SYSTEM = frozenset(map(look, SYSTEM_ACCOUNTS | SYSTEM_GROUPS | {"tpufleet"}))


class Seat(Name):
    """Where a person sits: at a chip, `tpu-0-w0:2`, or at all of a host, `tpu-0-w0`."""

    __slots__ = ()
    pattern = re.compile(rf"(?P<host>{HostName.pattern.pattern})(?::(?P<chip>[0-9]|1[0-5]))?")
    says = "a chip such as tpu-0-w0:2, or a host such as tpu-0-w0"

    @property
    def host(self) -> HostName:
        return HostName(self.partition(":")[0])

    @property
    def chip(self) -> int | None:
        """Its number on the host; None for all of them."""
        _, colon, number = self.partition(":")
        return int(number) if colon else None


class Zone(Name):
    __slots__ = ()
    pattern = re.compile(r"[a-z]+-[a-z]+[0-9]{1,2}-[a-z]")
    says = "a zone such as us-central1-b"


class ProjectId(Name):
    __slots__ = ()
    pattern = re.compile(r"(?:[a-z0-9.-]{1,60}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
    says = "a Google Cloud project id (lower-case letters, digits, hyphens, 6 to 30 characters)"


class LoginName(Name):
    """An account that exists already on somebody's host; the system's own are no concern of ours there."""

    __slots__ = ()
    pattern = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
    says = "a Linux user name (lower-case letters, digits, '.', '-', '_')"


class Address(Name):
    """Where SSH reaches a host: a name, an IPv4 or an IPv6 address."""

    __slots__ = ()
    pattern = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-fA-F:]{2,39}")
    says = "a host's name or its IP address"


class Duration(Name):
    """A length of time in whole minutes, hours or days, or in seconds: `30m`, `8h`, `7d`, `90s`."""

    __slots__ = ()
    pattern = re.compile(r"(?:0|[1-9][0-9]{0,6})[smhd]")
    says = "a length of time such as 90s, 30m, 8h or 7d"

    @property
    def seconds(self) -> float:
        return float(self[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[self[-1]]


class LabelKey(Name):
    """The name of a Google Cloud label."""

    __slots__ = ()
    pattern = re.compile(r"[a-z][a-z0-9_-]{0,62}")
    says = "lower-case letters, digits, '-' and '_', beginning with a letter, at most 63 characters"


class LabelValue(Name):
    """The value of a Google Cloud label."""

    __slots__ = ()
    pattern = re.compile(r"[a-z0-9_-]{0,63}")
    says = "lower-case letters, digits, '-' and '_', at most 63 characters"


class Resource(Name):
    """The name of a Google Cloud resource, short or in full: `default`, `projects/p/global/networks/n`."""

    __slots__ = ()
    pattern = re.compile(r"[a-z0-9][a-z0-9._:-]{0,127}(?:/[a-z0-9][a-z0-9._:-]{0,127}){0,9}")
    says = "a resource's name such as default or projects/my-project/zones/us-central1-b/disks/text"


class ServiceAccount(Name):
    __slots__ = ()
    pattern = re.compile(r"[a-z0-9][a-z0-9-]{0,62}@[a-z0-9][a-z0-9.-]{0,127}\.[a-z]{2,20}")
    says = "a service account's address such as trainer@my-project.iam.gserviceaccount.com"


class GitRef(Name):
    """A branch, a tag or a commit; never something git could take for an option."""

    __slots__ = ()
    pattern = re.compile(r"(?!-)(?!.*\.\.)(?!.*@\{)[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")
    says = "a branch, a tag or a commit"


class RepoUrl(Name):
    """A repository that hosts clone themselves: https, ssh or git@host:path; other forms make git run things."""

    __slots__ = ()
    pattern = re.compile(
        r"https://[A-Za-z0-9][A-Za-z0-9.-]*(?::\d{1,5})?/[\w.~/+@%-]+"
        r"|ssh://(?:[\w.-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*(?::\d{1,5})?/[\w.~/+@%-]+"
        r"|git@[A-Za-z0-9][A-Za-z0-9.-]*:[\w.~/+@%-]+",
        re.ASCII,
    )
    says = "an https:// or ssh:// address, git@host:path, or a local directory"


def shown(text: str, limit: int = 60) -> str:
    """`text` as it may be shown to a person: quoted, control characters escaped, cut to `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return repr(cut)


def slug(value: object) -> str:
    """A grid value as a part of a run id: `0.001` stays, `"Two Words"` becomes `two-words`."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^a-z0-9._+-]+", "-", text.lower()).strip("-")
