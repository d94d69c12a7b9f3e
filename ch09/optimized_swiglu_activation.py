"""One kernel computes the gate again in registers and writes the activation and both gradients from there."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_swiglu_activation import workload as workload
from common.python.workload import Step

BLOCK = 1024  # eight elements of each tensor for each of 128 threads: three loads of 16 bytes in flight


@triton.jit
def swiglu_backward(gate, up, slope, out, to_gate, to_up, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    g = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=mask, other=0.0).to(tl.float32)
    s = tl.load(slope + at, mask=mask, other=0.0).to(tl.float32)
    sigmoid = tl.sigmoid(g)
    active = g * sigmoid
    tl.store(out + at, active * u, mask=mask)
    tl.store(to_gate + at, s * u * (sigmoid + active * (1.0 - sigmoid)), mask=mask)
    tl.store(to_up + at, s * active, mask=mask)


def prepare(gate: Tensor, up: Tensor, slope: Tensor) -> Step:
    out, to_gate, to_up = (torch.empty_like(gate) for _ in range(3))
    count = gate.numel()
    grid = (triton.cdiv(count, BLOCK),)

    def step() -> tuple[Tensor, ...]:
        swiglu_backward[grid](gate, up, slope, out, to_gate, to_up, count, BLOCK=BLOCK, num_warps=4)
        return out, to_gate, to_up

    return step
