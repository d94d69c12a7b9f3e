"""A graph makes one token of each sequence, and the host reads after each replay whether all sequences have ended."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)

FEWEST, MOST = 64, 192  # tokens; token 0 ends a sequence
ONE = 1 << 20  # scores are fixed-point numbers below 1, so that sums are exact
SLOPE = 2 * ONE // (MOST - 1 - FEWEST) + 1  # by which token 0 gains at each position: at the last one it wins


def inputs(draw: Draw, batch: int, vocabulary: int) -> Inputs:
    """What the last token and the one before it make of each next token, and the two tokens to begin with."""
    return {
        "last": draw.integers(vocabulary, vocabulary, high=ONE, dtype=torch.int32),
        "before": draw.integers(vocabulary, vocabulary, high=ONE, dtype=torch.int32),
        "prompt": draw.integers(batch, 2, low=1, high=vocabulary, dtype=torch.int32),
    }


def reference(last: Tensor, before: Tensor, prompt: Tensor) -> Tensor:
    """The tokens, the best first where two are as good; zeros behind the end."""
    tokens, names = [*prompt.long().unbind(1)], torch.arange(len(last), device=last.device)
    for position in range(MOST):
        scores = last[tokens[-1]].long() + before[tokens[-2]]
        scores[:, 0] = scores[:, 0] + SLOPE * (position - FEWEST) if position >= FEWEST else -1
        chosen = (scores * len(last) - names).argmax(dim=1)  # no two are equal
        tokens.append(torch.where(tokens[-1] == 0, 0, chosen))
    return torch.stack(tokens[2:], dim=1).int()


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda batch, vocabulary: Cost(launches=1, read=8 * vocabulary, write=4 * batch * MOST),
    sizes={"bench": {"batch": 64, "vocabulary": 4096}, "test": {"batch": 5, "vocabulary": 301}},
    tolerance=0.0,
    clock="end_to_end",
)


def release(discard: Callable[[int], None], graph: int, *_addressed: Tensor) -> None:
    discard(graph)


def decoding(file: str, last: Tensor, before: Tensor, prompt: Tensor) -> Step:
    """A step by the .cu file beside `file`: its `record` makes a graph, `decode` uses it, and `discard` frees it."""
    record, decode, discard = (load_cuda(file, name) for name in ("record", "decode", "discard"))
    tokens, progress = prompt.new_empty(len(prompt), MOST), prompt.new_empty(2)
    host = torch.zeros(2, dtype=torch.int64, pin_memory=True)  # the graph, and what the host reads back
    record(last, before, prompt, tokens, progress, host, len(prompt), len(last), FEWEST, MOST, SLOPE)

    def step() -> Tensor:
        decode(tokens, progress, host, len(prompt), MOST)
        return tokens

    # The graph goes when its step does, and until then holds the tensors of which it has only the addresses.
    weakref.finalize(step, release, discard, int(host[0]), last, before, prompt, tokens, progress, host)
    return step


def prepare(last: Tensor, before: Tensor, prompt: Tensor) -> Step:
    return decoding(__file__, last, before, prompt)
