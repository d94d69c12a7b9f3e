"""A product of fp32 matrices on CUDA cores: each multiply-add is an instruction of one lane, exact to 24 bits."""

import torch
import triton
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, m, n, k: {"a": draw.normal(m, k), "b": draw.normal(n, k)},  # b as a linear keeps it
    reference=lambda a, b: a @ b.T,
    # Numbers of one size, as these are, are sums of two fp16 numbers to 22 bits: three products of 16 bits.
    cost=lambda m, n, k: Cost(flops=6 * m * n * k, dtype="bf16", passes=3, read=4 * (m * k + n * k), write=4 * m * n),
    sizes={
        "bench": {"m": 4096, "n": 4096, "k": 4096},
        "cpu": {"m": 512, "n": 512, "k": 512},
        "test": {"m": 197, "n": 135, "k": 99},
    },
    rungs="tf32x3 fp16x3",
    tolerance=5e-6,  # adding 4,096 products in fp32 one by one is off by 1.6e-6, TF32 alone by 3e-4
)


def tile() -> dict[str, int]:
    """Of the rungs: small where wgmma and tcgen05, which spare registers, are missing."""
    wide = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    return {"M": 128, "N": 128, "num_warps": 8} if wide else {"M": 64, "N": 64, "num_warps": 4}


def prepare(a: Tensor, b: Tensor) -> Step:
    out = a.new_empty(len(a), len(b))

    def step() -> Tensor:
        return torch.mm(a, b.T, out=out)

    return step
