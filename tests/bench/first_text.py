"""Run by a Python with torch_xla: how long a model takes to say its first 32 bytes on XLA, and the next 32.

`first_text.py ours|workshop DIRECTORY`: jobs/gpt's way to complete a prompt, or that of the workshop's repository, each
with an untrained model of the workshop's size. One line of JSON: seconds on the clock and compilations, both times.
"""

import json
import os
import sys
import time
from collections.abc import Callable

NAME, DIRECTORY = sys.argv[1:3]
CONTEXT, WRITTEN, PROMPT = 128, 32, '"Elementary, my dear'
os.environ["PJRT_DEVICE"] = "CPU"
sys.path.insert(0, DIRECTORY)

import torch  # noqa: E402  after the environment that it reads
import torch_xla  # noqa: E402  after the environment that it reads
from torch_xla.debug import metrics  # noqa: E402  after the environment that it reads


def compilations() -> int:
    data = metrics.metric_data("CompileTime")
    return data[0] if data else 0


def ours() -> Callable[[], object]:
    import complete
    import device
    import model
    from options import Options
    from training import shape_of

    xla = device.choose("xla")
    gpt = model.GPT(shape_of(Options())).on(xla.torch)
    start = PROMPT.encode()
    return lambda: complete.complete(gpt, xla, start, length=WRITTEN - len(start), temperature=1.0, seed=0)


def workshop() -> Callable[[], object]:
    import model

    device = torch_xla.device()
    sizes = {"embed_size": 32, "mlp_size": 64, "num_heads": 4, "num_layers": 4}
    gpt = model.ByteTransformer(max_context_length=CONTEXT, device=device, **sizes).eval()
    return lambda: model.complete(gpt, PROMPT, max_bytes=WRITTEN, device=device)


torch.manual_seed(0)
say = {"ours": ours, "workshop": workshop}[NAME]()
torch_xla.sync()  # the model is there before the clock runs
found: list[dict[str, float]] = []
with torch.no_grad():
    for _ in range(2):
        before, begin = compilations(), time.perf_counter()
        say()
        found.append({"seconds": time.perf_counter() - begin, "compilations": compilations() - before})
print(json.dumps(found))
