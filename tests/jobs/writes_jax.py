"""Run by a Python that has JAX: goes on writing checkpoints without end, a line for each that is finished."""

import importlib.util
import sys
from pathlib import Path

import numpy as np

PROGRAM, OUT = Path(sys.argv[1]), Path(sys.argv[2])
spec = importlib.util.spec_from_file_location("gpt_jax", PROGRAM)
train = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  the file is there
sys.modules["gpt_jax"] = train
spec.loader.exec_module(train)  # type: ignore[union-attr]

steps = [int(checkpoint.name.removeprefix("step-")) for checkpoint in train.checkpoints(OUT)]
step = max(steps, default=0)
train.begin_at(OUT, step or -1)
while True:
    step += 1
    train.save(OUT, step, 2, {"numbers": np.full(200_000, step, np.float32)})
    print(step, flush=True)
