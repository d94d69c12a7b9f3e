"""The graph has a block for each row that there may ever be; blocks of rows that are not in use end at once."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
MORE = 32  # tokens by which two sequences differ from batch to batch, so that no grid that was fixed before is right


def together(rows: int, pairs: int) -> int:
    """Tokens of two sequences at least, so that at least an eighth of all rows is in use."""
    return rows // (8 * pairs)


def inputs(draw: Draw, layers: int, rows: int, pairs: int, width: int) -> Inputs:
    """A buffer of as many rows as a batch may have, for each layer, and the lengths of this batch's sequences."""
    least = together(rows, pairs)
    lengths = draw.integers(pairs, low=1, high=least, dtype=torch.int32)
    both = least + draw.integers(pairs, high=min(MORE, rows // pairs - least + 1), dtype=torch.int32)
    return {
        "x": draw.normal(layers, rows, width),
        "weight": draw.uniform(layers, width, low=0.5, high=1.5),
        "lengths": torch.cat([lengths, both - lengths]),
    }


def reference(x: Tensor, weight: Tensor, lengths: Tensor) -> Tensor:
    """RMSNorm of the rows in use, in place; the others are left alone."""
    used = x[:, : int(lengths.sum())]
    used *= (used.square().mean(dim=2, keepdim=True) + 1e-6).rsqrt() * weight[:, None]
    return x


def cost(layers: int, rows: int, pairs: int, width: int) -> Cost:
    used = 4 * layers * pairs * together(rows, pairs) * width  # in the smallest batch
    return Cost(read=used, write=used)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"layers": 4, "rows": 262144, "pairs": 32, "width": 512},
        "test": {"layers": 3, "rows": 301, "pairs": 3, "width": 132},
    },
    tolerance=2e-6,  # fp32
    mutates=("x",),
)


def release(discard: Callable[[int, int], None], executable: int, graph: int, *_addressed: Tensor) -> None:
    discard(executable, graph)


def normalizing(file: str, x: Tensor, weight: Tensor, lengths: Tensor) -> Step:
    """A step by the .cu file beside `file`: its `record` makes a graph, `replay` runs it, and `discard` frees it."""
    record, replay, discard = (load_cuda(file, name) for name in ("record", "replay", "discard"))
    state = torch.empty(1 + len(x), dtype=torch.int64, device=x.device)  # rows in use, and what the layers need
    made = torch.empty(2, dtype=torch.int64, pin_memory=True)
    record(x, weight, lengths, state, made, len(lengths), *x.shape)
    executable, graph = made.tolist()

    def step() -> Tensor:
        replay(executable)
        return x

    # The graph goes when its step does, and until then holds the tensors of which it has only the addresses.
    weakref.finalize(step, release, discard, executable, graph, x, weight, lengths, state)
    return step


def prepare(x: Tensor, weight: Tensor, lengths: Tensor) -> Step:
    return normalizing(__file__, x, weight, lengths)
