"""Two warpgroups of a block load, multiply and find a softmax's weights in step: tensor cores wait for exponentials."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(targets=["sm_90a"])
WIDTH = 128  # of a head


def inputs(draw: Draw, heads: int, tokens: int) -> Inputs:
    spread = {"q": 0.5, "k": 1.0, "v": 1.0}  # as in ch18:flash_forward: small scores
    return {name: draw.normal(heads, tokens, WIDTH, std=std, dtype=torch.bfloat16) for name, std in spread.items()}


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads = zip(q, k, v)  # one at a time: its scores in float64 are 2 GiB at bench size
    return torch.stack([(a @ b.T).mul_(WIDTH**-0.5).softmax(dim=1) @ c for a, b, c in heads])


def cost(heads: int, tokens: int) -> Cost:
    numbers = heads * tokens * WIDTH
    moved = {"read": 2 * 3 * numbers, "write": 2 * numbers}
    return Cost(flops=2 * 2 * numbers * tokens, dtype="bf16", **moved, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"heads": 8, "tokens": 16384},  # those of ch18:flash_forward
        "test": {"heads": 3, "tokens": 397},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% each on average
)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    attend, out = load_cuda(__file__, "attend"), torch.empty_like(q)

    def step() -> Tensor:
        attend(q, k, v, out, *q.shape[:2])
        return out

    return step
