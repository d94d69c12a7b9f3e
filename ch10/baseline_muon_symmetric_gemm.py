"""The Gram matrix of Muon's update by cuBLAS, which does not know that one half of it is the mirror of the other."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Metered, Step, Workload


def inputs(draw: Draw, n: int, k: int, dtype: str) -> Inputs:
    # Rows share a direction, as a gradient's do. Else the diagonal would be 90 times the rest, and its rounding all.
    return {"x": draw.normal(n, k, dtype=getattr(torch, dtype)).add_(0.5)}


workload = Workload(
    inputs=inputs,
    reference=lambda x: x @ x.T,
    # A product for each pair of rows, and for each row with itself.
    cost=lambda n, k, dtype: Cost(flops=n * (n + 1) * k, dtype="bf16", read=2 * n * k, write=2 * n * n),
    sizes={
        "bench": {"n": 8192, "k": 8192, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; TMA copies rows that begin at multiples of 16 bytes
        "test": {"n": 584, "k": 136, "dtype": "float16"},
    },
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


def metered(step: Step) -> Metered:
    """The step, and how many numbers differ from their mirror: what follows may read one half alone, if none does."""

    def metrics() -> dict[str, float]:
        out = step()
        assert isinstance(out, Tensor)
        return {"numbers unlike their mirror": float((out != out.T).sum())}

    return Metered(step, metrics)


def prepare(x: Tensor) -> Metered:
    out = x.new_empty(len(x), len(x))

    def step() -> Tensor:
        return torch.mm(x, x.T, out=out)

    return metered(step)
