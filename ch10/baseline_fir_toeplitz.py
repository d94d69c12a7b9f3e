"""A filter of 128 taps, tap by tap: a shifted load and a multiplication for each tap of each sample, on CUDA cores."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

TAPS = 128


def inputs(draw: Draw, channels: int, n: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {"x": draw.normal(channels, n, dtype=element), "taps": draw.normal(TAPS, std=TAPS**-0.5, dtype=element)}


def reference(x: Tensor, taps: Tensor) -> Tensor:
    out = taps[0] * x
    for tap in range(1, min(TAPS, x.shape[1])):  # before the first sample there is silence
        out[:, tap:].add_(x[:, :-tap] * taps[tap])
    return out


workload = Workload(
    inputs=inputs,
    reference=reference,
    # Bytes alone: a fused Fourier transform would have few operations.
    cost=lambda channels, n, dtype: Cost(read=2 * channels * n, write=2 * channels * n),
    sizes={
        "bench": {"channels": 64, "n": 1 << 20, "dtype": "bfloat16"},
        "test": {"channels": 3, "n": 1001, "dtype": "float16"},  # Triton's interpreter has no bf16 dot
    },
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
    frozen=("taps",),
)


@triton.jit
def fir(x, taps, out, n, TAPS: tl.constexpr, SAMPLES: tl.constexpr):
    at = tl.program_id(0) * SAMPLES + tl.arange(0, SAMPLES)
    channel = tl.program_id(1).to(tl.int64) * n
    total = tl.zeros((SAMPLES,), tl.float32)
    for tap in range(TAPS):
        sample = tl.load(x + channel + at - tap, mask=(at >= tap) & (at < n), other=0.0)
        total += sample.to(tl.float32) * tl.load(taps + tap).to(tl.float32)
    tl.store(out + channel + at, total.to(out.dtype.element_ty), mask=at < n)


def prepare(x: Tensor, taps: Tensor) -> Step:
    (channels, n), out, samples = x.shape, torch.empty_like(x), 1024

    def step() -> Tensor:
        fir[(triton.cdiv(n, samples), channels)](x, taps, out, n, TAPS, samples, num_warps=4)
        return out

    return step
