"""A host function in the stream turns each step's tokens into text: the GPU idles until the CPU has done so."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
PIECE, STOP = 16, 4  # bytes of a token, and of the stop word


def inputs(draw: Draw, steps: int, rows: int, vocabulary: int) -> Inputs:
    """Text of four letters, so that each row has some stop words in it."""
    return {
        "logits": draw.normal(steps, rows, vocabulary, dtype=torch.float16),
        "pieces": draw.host.integers(vocabulary, PIECE, low=97, high=101, dtype=torch.uint8),
        "stop": draw.host.integers(STOP, low=97, high=101, dtype=torch.uint8),
    }


def reference(logits: Tensor, pieces: Tensor, stop: Tensor) -> tuple[Tensor, ...]:
    """The tokens, each row's text, and how many stop words it has; a token is less likely to follow itself."""
    ids: list[Tensor] = []
    for scores in logits:
        if ids:
            scores = scores.scatter_add(1, ids[-1][:, None], scores.new_full((len(scores), 1), -1))
        ids.append(scores.argmax(1))
    text = pieces.to(logits.device)[torch.stack(ids, 1)].flatten(1)
    found = text.unfold(1, STOP, 1).eq(stop.to(logits.device)).all(2).sum(1)
    return torch.stack(ids), text.cpu(), found.cpu()


workload = Workload(
    inputs=inputs,
    reference=reference,
    # The GPU reads the logits; what crosses PCIe, and what the CPU touches, is a thousandth of that.
    cost=lambda steps, rows, vocabulary: Cost(
        read=2 * steps * rows * vocabulary, write=4 * steps * rows, pcie_bytes=4 * steps * rows, items=steps * rows
    ),
    sizes={
        "bench": {"steps": 12, "rows": 1024, "vocabulary": 49152},
        "test": {"steps": 5, "rows": 37, "vocabulary": 1003},
    },
    tolerance=0.0,  # indices, bytes and counts
    frozen=("pieces", "stop"),
    clock="end_to_end",
)


def decoded(file: str, logits: Tensor, pieces: Tensor, stop: Tensor) -> Step:
    """A step by the function of the .cu file beside `file`."""
    generate, (steps, rows, _) = load_cuda(file, "generate"), logits.shape
    ids = logits.new_empty(steps, rows, dtype=torch.int32)
    seen = torch.empty(steps, rows, dtype=torch.int32, pin_memory=True)
    text = torch.empty(rows, steps * PIECE, dtype=torch.uint8, pin_memory=True)
    found = torch.empty(rows, dtype=torch.int32, pin_memory=True)
    known = pieces.pin_memory(), stop.pin_memory()

    def step() -> tuple[Tensor, ...]:
        generate(logits, *known, ids, seen, text, found, *logits.shape)
        return ids, text, found

    return step


def prepare(logits: Tensor, pieces: Tensor, stop: Tensor) -> Step:
    return decoded(__file__, logits, pieces, stop)
