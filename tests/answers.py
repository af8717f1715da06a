"""Holds what `--json` printed against the contract: tpufleet/cli/answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import ValidationError

from tpufleet.cli.answers import ANSWERS
from tpufleet.cli.answers.base import Answer, Failed


def check_answers(words: Sequence[str], stdout: str) -> None:
    """Fails unless every line of `stdout` is an answer of the verb in `words`, or (the last one) an error."""
    lines = stdout.splitlines()
    for line in lines:
        check_answer(words, line, may_fail=line is lines[-1])


def check_answer(words: Sequence[str], line: str, *, may_fail: bool = False) -> None:
    """The same for one line."""
    if may_fail and "error" in json.loads(line):
        kinds: Sequence[type[Answer]] = [Failed]
    else:
        kinds = ANSWERS[verb_of(words)]
    problems: list[str] = []
    for kind in kinds:
        try:
            kind.model_validate_json(line)
        except ValidationError as error:
            problems.append(f"{kind.__name__}: {error}")
        else:
            return
    raise AssertionError(f"tpufleet {' '.join(words)} answers otherwise than documented: " + "\n".join(problems))


def verb_of(words: Sequence[str]) -> str:
    """The verb of a command line: the longest of the contract that its words begin with, options left out."""
    plain = [word for word in words if not word.startswith("-")]
    for start in range(2):  # the value of --config may stand before the verb
        for length in (3, 2, 1):
            if (name := " ".join(plain[start : start + length])) in ANSWERS:
                return name
    raise ValueError(f"no verb of the contract in: {' '.join(words)}")
