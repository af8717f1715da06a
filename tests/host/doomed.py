"""The shipped directory's `__main__.py` in the crash tests: the agent as it is, with a name for each of its effects.

Before an effect happens (a file is opened to be written, renamed or removed; a process is started; a gate is opened;
an answer is given) its name goes to `doom/passed` below the host's root: `supervise: rename control/gpt/state.json`.
`doom/plan` may name one effect and which of its passings is the last thing that its process does: SIGKILL comes there,
noted in `doom/killed`. What happens in C, and what the hosts' Python has no audit event for, is wrapped.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = os.environ["TPUFLEET_HOST_ROOT"]
BASE = f"{ROOT}/var/lib/tpufleet/"
DOOM = Path(ROOT) / "doom"
MAKING = os.O_CREAT | os.O_TRUNC


def named(path):
    """A path without what differs between two lives; None for what isn't the host's."""
    path = str(Path(f"/proc/self/fd/{path}").readlink()) if isinstance(path, int) else os.fsdecode(path)
    if path.startswith("pipe:"):
        return "pipe"
    if path.startswith("/") and not path.startswith(f"{ROOT}/"):
        return None
    path = path.removeprefix(BASE).removeprefix(f"{ROOT}/")
    path = re.sub(r"((?:^|/)\.[^/]+)\.\d+(?=$|/)", r"\1.PID", path)
    path = re.sub(r"tmp/run-[\w-]+", "tmp/run", re.sub(r"chip-\d+", "chip-N", path))
    return re.sub(r"[0-9a-f]{40}", "COMMIT", re.sub(r"setup-[0-9a-f]{16}", "setup", path))


class Book:
    """What this process does, and when it is to end."""

    def __init__(self, who):
        self.who = who
        self.noting = False

    def passing(self, effect):
        """Notes an effect; the process ends here if it is the one."""
        if self.noting:
            return
        self.noting = True
        name = f"{self.who}: {effect}"
        with (DOOM / "passed").open("a+") as passed:
            fcntl.flock(passed, fcntl.LOCK_EX)
            passed.write(f"{name}\n")
            passed.flush()
            passed.seek(0)
            times = passed.read().splitlines().count(name)
            plan = DOOM / "plan"
            if plan.exists() and json.loads(plan.read_text()) == [name, times]:
                with (DOOM / "killed").open("a") as killed:
                    killed.write(f"{name}\n")
                os.kill(os.getpid(), signal.SIGKILL)
        self.noting = False

    def forked(self):
        self.who = "training"


book = Book(sys.argv[1])


def audited(event, values):
    """sys.addaudithook's: https://docs.python.org/3/library/audit_events.html."""
    if book.noting:
        return
    if event == "open":
        by_name = not isinstance(values[0], int)
        verb, target = "open", values[0] if by_name and values[2] & MAKING else None
    elif event == "os.rename":
        verb, target = "rename", values[1]
    elif event in ("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.symlink"):
        verb, target = event.removeprefix("os."), values[1 if event == "os.symlink" else 0]
    elif event in ("os.fork", "os.exec", "os.kill", "os.killpg"):
        book.passing(event.removeprefix("os."))
        return
    elif event == "subprocess.Popen":
        book.passing(f"run {word_for(values[1])}")
        return
    else:
        return
    name = named(target) if target is not None else None
    if name is not None:
        book.passing(f"{verb} {name}")


def word_for(command):
    """`work` for our own daemons; for others the program, of git its subcommand as well."""
    words = [os.fsdecode(word) for word in command]
    if words[1:2] == ["-ES"]:
        return words[3]
    pairs = zip(words, words[1:])  # noqa: B905, RUF007 - the last word has no next one; Python 3.10
    plain = [word for before, word in pairs if not word.startswith("-") and before not in ("-c", "-C")]
    return " ".join([Path(words[0]).name, *(plain[:1] if words[0] == "git" else [])])


def before(module, function, effect):
    """Wraps `module.function`: its effect is named by what it is done to."""
    real = getattr(module, function)

    def wrapped(*values, **options):
        target = named(values[0]) if values and not book.noting else None
        if target is not None:
            book.passing(f"{effect} {target}")
        return real(*values, **options)

    setattr(module, function, wrapped)


class Started(subprocess.Popen):
    """A child that was started, and nobody knows of it yet."""

    def __init__(self, command, *words, **options):
        super().__init__(command, *words, **options)
        book.passing(f"started {word_for(command)}")


from tpufleet.host import agent  # noqa: E402 - an import writes nothing that matters here

DOOM.mkdir(exist_ok=True)
for name in ("fsync", "write", "pwrite", "mkfifo"):
    before(os, name, name)
subprocess.Popen = Started
os.register_at_fork(after_in_child=book.forked)
say = agent._say
agent._say = lambda answer: (book.passing("answer"), say(answer))[1]
sys.addaudithook(audited)
raise SystemExit(agent.main())
