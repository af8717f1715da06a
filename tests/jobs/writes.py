"""Run by the Python that has torch: a process that writes checkpoint after checkpoint, as often as it is asked for one.

`write` forks such a process (so torch is imported once), which goes on from what is there as a resumed training does;
its pid is the answer. `look` answers with what a resume would load now: its step, and whether all of it is as saved.
"""

import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, sys.argv[1])
import checkpoint

DIRECTORY = Path(sys.argv[2])
FINISHED = Path(sys.argv[3])
NUMBERS = 200_000  # about a megabyte, so that a write takes long enough to be killed in


def parts(step: int) -> dict[str, object]:
    return {"model": {"weights": torch.full((NUMBERS,), float(step))}, "training": {"step": step}}


def write_for_ever() -> None:
    resumed = checkpoint.newest(DIRECTORY)
    step = checkpoint.verify(resumed) if resumed else 0
    checkpoint.cut(DIRECTORY, step)
    while True:
        step += 1
        checkpoint.save(DIRECTORY, step, parts(step))
        with FINISHED.open("a") as finished:
            finished.write(f"{step}\n")
        checkpoint.prune(DIRECTORY, 2)


def look() -> dict[str, object]:
    found = checkpoint.newest(DIRECTORY)
    if found is None:
        return {"step": 0, "whole": True}
    step = checkpoint.verify(found)
    model, training = checkpoint.load(found, "model"), checkpoint.load(found, "training")
    whole = bool((model["weights"] == step).all()) and len(model["weights"]) == NUMBERS and training == {"step": step}
    return {"step": step, "whole": whole}


torch.set_num_threads(1)
for line in sys.stdin:
    if line.strip() == "look":
        print(json.dumps(look()), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        write_for_ever()
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)
