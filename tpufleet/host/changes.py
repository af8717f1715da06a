"""What was changed by hand in a checkout that a run starts from, kept beside what the run writes: `changes.diff`.

A commit and this are all that one needs to start the same again. It may be mailed around with the results, so that
files which look like they hold a secret are only named.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from tpufleet.host import files, git
from tpufleet.host.errors import HostError

NAME = "changes.diff"
MOST = 1_000_000  # bytes in all
SMALL = 64 << 10  # bytes of a file that git doesn't know
MOST_FILES = 500
LIMIT_S = 60.0  # for git; a launch waits for it
BIG = "16m"  # of larger files git says only that they differ
DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", "HEAD")
EACH = re.compile(r"^(?=diff --git )", re.MULTILINE)  # lines of a file begin with a sign
CUT = "\n# cut here: the changes are larger than 1 MB\n"
SECRET = re.compile(
    r"secret|token(?!i)|passw|credential|api_?key|(^|/)\.|\.(pem|key|p12|env)$|id_(rsa|ed25519)", re.IGNORECASE
)


def keep(tree: Path | None, run_dir: Path) -> None:
    """Writes the changes of a checkout to the run's directory; for None, a clean one, removes what an earlier attempt
    left. Nothing that goes wrong here keeps a run from starting."""
    with contextlib.suppress(OSError, HostError):
        if tree is None:
            (run_dir / NAME).unlink(missing_ok=True)
        else:
            files.write_atomic(run_dir / NAME, changes_of(tree))


def changes_of(tree: Path) -> bytes:
    """`git diff HEAD`, then the files that git doesn't know and doesn't ignore, as they would stand in a diff."""
    local = git.looking_at(tree)
    tracked = git.git(*local, "-c", f"core.bigFileThreshold={BIG}", *DIFF, timeout_s=LIMIT_S)
    names = git.git(*local, "ls-files", "--others", "--exclude-standard", "-z", timeout_s=LIMIT_S).split("\0")
    data = (
        "".join(map(_without_secrets, EACH.split(tracked))) + "".join(_as_new(tree, name) for name in _wanted(names))
    ).encode(errors="replace")
    return data if len(data) <= MOST else data[: MOST - len(CUT)].decode(errors="ignore").encode() + CUT.encode()


def _without_secrets(part: str) -> str:
    """One file's part of a diff; only its name where that looks like a secret."""
    head = part.partition("\n")[0]
    return f"{head}\n# not shown here\n" if SECRET.search(head.rstrip('"')) else part


def _wanted(names: list[str]) -> list[str]:
    """Untracked files worth telling of: no environments, no caches. (`python -m venv` writes no .gitignore.)"""
    return [name for name in names if name and not {".venv", "__pycache__"} & set(name.split("/"))][:MOST_FILES]


def _as_new(tree: Path, name: str) -> str:
    """A file as an addition in a diff; only its name where it is large, no text, or looks like a secret."""
    shown = name if name.isprintable() else ascii(name)
    head = f"diff --git a/{shown} b/{shown}\nnew file mode 100644\n"
    text = None if SECRET.search(name) else _text_of(tree, name)
    if text is None:
        return f"{head}# not shown here\n"
    lines = text.removesuffix("\n").split("\n") if text else []
    body = "".join(f"+{line}\n" for line in lines)
    end = "" if text.endswith("\n") else "\\ No newline at end of file\n"
    return f"{head}--- /dev/null\n+++ b/{shown}\n@@ -0,0 +1,{len(lines)} @@\n{body}{end}" if lines else head


def _text_of(tree: Path, name: str) -> str | None:
    """What is in a small text file; None for any other."""
    try:
        with os.fdopen(files.open_beneath(tree, name), "rb") as file:
            data = file.read(SMALL + 1)
        return data.decode() if len(data) <= SMALL and b"\0" not in data else None
    except (OSError, UnicodeDecodeError):
        return None
