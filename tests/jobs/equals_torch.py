"""Run by a Python that has JAX and torch: the same weights and batches in both; prints each step's two losses.

`equals_torch.py JOBS STEPS BLOCK` writes a line of JSON: [[torch's, JAX's], …].
"""

import importlib.util
import json
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import torch

JOBS, STEPS = Path(sys.argv[1]), int(sys.argv[2])
sys.path.insert(0, str(JOBS / "gpt"))  # for what its model.py imports


def load(path: Path, name: str) -> object:
    """Both jobs have a `train.py`, so neither goes by its plain name."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  the files are there
    sys.modules[name] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


ours, theirs = load(JOBS / "gpt_jax" / "train.py", "gpt_jax"), load(JOBS / "gpt" / "model.py", "gpt_model")


def transferred(model: torch.nn.Module) -> dict[str, object]:
    """torch's weights as JAX's job has them: matrices the other way round, those of all blocks stacked."""
    array = {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}
    blocks = len(model.blocks)

    def layer(name: str) -> dict[str, np.ndarray]:
        found = {"weight": array[f"{name}.weight"].T}
        return found | ({"bias": array[f"{name}.bias"]} if f"{name}.bias" in array else {})

    def stacked(name: str) -> dict[str, np.ndarray]:
        each = [layer(f"blocks.{n}.{name}") for n in range(blocks)]
        return {part: np.stack([one[part] for one in each]) for part in each[0]}

    parts = {
        "attention_norm": "attention.norm",
        "query_key_value": "attention.query_key_value",
        "output": "attention.output",
        "mlp_norm": "mlp.0",
        "mlp_in": "mlp.1",
        "mlp_out": "mlp.3",
    }
    return {
        "bytes": array["bytes.weight"],
        "positions": array["positions.weight"],
        "blocks": {ours: stacked(theirs) for ours, theirs in parts.items() if f"blocks.0.{theirs}.weight" in array},
        "norm": layer("norm"),
        "scores": layer("scores"),
    }


def losses(block: str) -> list[list[float]]:
    """Each step's two losses, of a model with such blocks."""
    sizes = {"context": 32, "width": 32, "mlp": 64, "heads": 4, "layers": 2, "block": block}
    others = {"batch": 8, "threads": 1, "device": "cpu"}
    options = ours.parse_options([f"--{name}={value}" for name, value in {**sizes, **others}.items()])
    ours.choose_device(options)
    model = theirs.GPT(theirs.Shape(**sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

    weights = transferred(model)
    zeros = jax.tree.map(np.zeros_like, weights)
    state = {"weights": weights, "mean": zeros, "square": zeros}
    assert jax.tree.map(np.shape, state) == jax.tree.map(np.shape, ours.initial_state(options))

    data = np.frombuffer(b"".join(b'"It is %d steps," said Holmes.\n' % n for n in range(200)), np.uint8)
    places = len(data) - options.context
    advance = jax.jit(partial(ours.launch, options))
    pairs = []
    for step in range(STEPS):
        drawn = ours.draw(options, step, places)
        state, found = advance(state, data, drawn, np.float32(options.lr))
        windows = torch.tensor(data[drawn[1][0][:, None] + np.arange(options.context + 1)]).long()
        loss = model.loss(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pairs.append([loss.item(), float(found[0])])
    return pairs


torch.manual_seed(0)
torch.set_num_threads(1)
print(json.dumps(losses(sys.argv[3])))
