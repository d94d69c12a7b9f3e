"""Gate and up are two cuBLAS products that store their results, and a third kernel reads both back to combine them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, width: int, hidden: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "x": draw.normal(tokens, width, dtype=element),
        "gate": draw.normal(hidden, width, std=width**-0.5, dtype=element),
        "up": draw.normal(hidden, width, std=width**-0.5, dtype=element),
    }


def reference(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(x @ gate.T) * (x @ up.T)


def cost(tokens: int, width: int, hidden: int, dtype: str) -> Cost:
    read = 2 * (tokens * width + 2 * hidden * width)
    return Cost(read=read, write=2 * tokens * hidden, flops=4 * tokens * hidden * width, dtype="bf16")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 128 requests decode together. The weights are 537 MB, and all else 6 MB.
        "bench": {"tokens": 128, "width": 8192, "hidden": 16384, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; TMA copies rows that begin at multiples of 16 bytes
        "test": {"tokens": 139, "width": 136, "hidden": 297, "dtype": "float16"},
    },
    # Three roundings to bf16, each by 0.17% on average. The largest of two million products is 25 times the rms, and
    # its rounding must stay within ten times this.
    tolerance=0.02,
    frozen=("gate", "up"),
)


@triton.jit
def swiglu(gated, upward, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gated + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(upward + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, g * tl.sigmoid(g) * u, mask=at < count)


def prepare(x: Tensor, gate: Tensor, up: Tensor) -> Step:
    gated, upward, out = (x.new_empty(len(x), len(gate)) for _ in range(3))
    count = out.numel()

    def step() -> Tensor:
        torch.mm(x, gate.T, out=gated)
        torch.mm(x, up.T, out=upward)
        swiglu[(triton.cdiv(count, 1024),)](gated, upward, out, count, BLOCK=1024, num_warps=4)
        return out

    return step
