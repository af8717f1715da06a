"""Run by the Python that has torch: looks at parts of the job from within and prints what it found as JSON."""

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

sys.path.insert(0, sys.argv[1])
import attention
import complete
import device
import model
import options
import training

CPU = device.choose("cpu")
TEXT = b"".join(b'"It is %d steps," said Holmes.\n' % n for n in range(200))
TINY = options.Options(context=16, width=16, mlp=32, heads=2, layers=2, batch=4, steps=40)


def changed(**values: object) -> options.Options:
    return options.Options(**{**vars(TINY), **values})


def train(chosen: options.Options, launches: int) -> training.Training:
    made = training.Training(chosen, training.Windows(TEXT, chosen.context, CPU), CPU)
    for _ in range(launches):
        made.advance()
    return made


def weights(trained: training.Training) -> list[float]:
    return [float(weight.double().sum()) for weight in trained.model.parameters()]


def attention_by_hand() -> list[float]:
    """How far outputs and gradients are from torch's own kernel, most, for several shapes; all are done by hand."""
    apart: list[float] = []
    for batch, places, heads, size in ((2, 16, 2, 8), (3, 7, 4, 4), (1, 1, 1, 8), (2, 128, 4, 8)):
        x = torch.randn(batch, places, 3 * heads * size, requires_grad=True)
        assert attention._worth_doing_by_hand(x.unflatten(2, (3, heads, -1)))
        mixed = attention.attention(x, heads)
        query, key, value = x.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        known = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        known = known.transpose(1, 2).flatten(2)
        toward = torch.randn_like(known)
        ours, theirs = (torch.autograd.grad(y, x, toward)[0] for y in (mixed, known))
        apart += [float((mixed - known).abs().max()), float((ours - theirs).abs().max())]
    return apart


def left_to_torch() -> list[bool]:
    """Whether torch's kernel is taken: for large heads, long contexts, half precision, without a gradient."""
    shapes = [torch.randn(1, 4, 3, 1, 9), torch.randn(1, 257, 3, 1, 8), torch.randn(1, 4, 3, 1, 8).bfloat16()]
    wanted = [x.requires_grad_() for x in shapes] + [torch.randn(1, 4, 3, 1, 8)]
    return [not attention._worth_doing_by_hand(x) for x in wanted]


def completions() -> list[list[int]]:
    """What XLA's way to complete says, and the usual way; the text is longer than the context."""
    torch.manual_seed(1)
    gpt = model.GPT(training.shape_of(TINY)).eval()
    for weight in gpt.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    noise = torch.randn(40, 256)
    ways = (complete.fixed, complete.growing)
    with torch.no_grad():
        return [[int(byte) for byte in follow(gpt, CPU, b"It is", noise)] for follow in ways]


def tied() -> dict[str, object]:
    """A training with tied weights: what it saves, another loads, and both go on alike."""
    first, second = train(changed(tie_weights=True), 3), train(changed(tie_weights=True), 0)
    state = copy.deepcopy(first.state())  # as the way over a disk does
    second.restore(state["model"], state["training"])
    first.advance()
    second.advance()
    return {
        "one": second.model.scores.weight is second.model.bytes.weight,
        "alike": weights(first) == weights(second),
        "saved": sum(weight.numel() for weight in train(TINY, 0).model.parameters())
        - sum(weight.numel() for weight in second.model.parameters()),
    }


def from_another_device() -> bool:
    """A checkpoint of a training on XLA, whose Adam counts on the device, goes on here."""
    first, second = train(TINY, 3), train(TINY, 0)
    state = copy.deepcopy(first.state())  # as the way over a disk does
    for group in state["training"]["optimizer"]["param_groups"]:
        group |= {"capturable": True, "fused": None}
    second.restore(state["model"], state["training"])
    first.advance()
    second.advance()
    return weights(first) == weights(second)


def half_precision() -> list[float]:
    """The loss of a training's last step in full precision and in bf16."""
    found: list[float] = []
    for amp in (None, "bf16"):
        trained = train(changed(amp=amp, width=64, heads=2), 30)
        trained.take_train_loss()
        trained.advance()
        found.append(trained.take_train_loss() or 0.0)
    return found


def rates() -> list[float]:
    cosine = changed(schedule="cosine", warmup=4, steps=20, lr=1.0)
    return [training.rate(cosine, step) for step in (0, 1, 3, 4, 12, 20, 30)] + [training.rate(TINY, 7)]


def launches() -> list[list[float]]:
    """The weights after ten steps, one by one and five at a time; the second resumed within a launch."""
    again = train(changed(steps_per_launch=5), 0)
    begun = train(TINY, 3).state()
    again.restore(begun["model"], begun["training"])
    again.advance()
    again.advance()
    return [weights(train(TINY, 10)), weights(train(changed(steps_per_launch=5), 2)), weights(again)]


FOUND: dict[str, Callable[[], Any]] = {
    found.__name__: found
    for found in (
        *(attention_by_hand, left_to_torch, completions, tied, from_another_device),
        *(half_precision, rates, launches),
    )
}
torch.set_num_threads(1)
torch.manual_seed(0)
print(json.dumps({name: find() for name, find in FOUND.items()}))
