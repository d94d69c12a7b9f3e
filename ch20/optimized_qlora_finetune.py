"""The base stays at four bits: each matrix is widened into one shared buffer before each of its products."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_qlora_finetune import GROUP, VALUES, Adapters, Base, training
from ch20.baseline_qlora_finetune import workload as workload
from common.models.decoder import Shape
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=40)
BYTES = 2048  # of codes in a program


@triton.jit
def widen(codes, scales, values, out, GROUP: tl.constexpr, BYTES: tl.constexpr, count):
    at = tl.program_id(0).to(tl.int64) * BYTES + tl.arange(0, BYTES)
    code = tl.load(codes + at, at < count, 0).to(tl.int32)
    scale = tl.load(scales + at // (GROUP // 2), at < count, 0.0).to(tl.float32)
    both = tl.join(tl.load(values + (code & 15)) * scale, tl.load(values + (code >> 4)) * scale)
    place = tl.program_id(0).to(tl.int64) * 2 * BYTES + tl.arange(0, 2 * BYTES)
    tl.store(out + place, tl.reshape(both, (2 * BYTES,)), place < 2 * count)


class Frozen(torch.autograd.Function):
    """x times a matrix that `made` brings into the buffer; the buffer is not kept, so the way back asks again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, made: Callable[[], Tensor]) -> Tensor:
        ctx.made = made
        return F.linear(x, made())

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope @ ctx.made(), None


def prepare(base: Base, adapters: Adapters, tokens: Tensor, shape: Shape) -> Step:
    matrices = [part[0] for layer in base["layers"] for part in layer.values() if isinstance(part, tuple)]
    buffer = base["norm"].new_empty(2 * max(codes.numel() for codes in matrices))
    values = torch.tensor(VALUES, device=tokens.device)

    def wide(codes: Tensor, scales: Tensor) -> Tensor:
        count = codes.numel()
        widen[(triton.cdiv(count, BYTES),)](codes, scales, values, buffer, GROUP, BYTES, count, num_warps=4)
        return buffer[: 2 * count].view(len(codes), -1)

    def make(codes: Tensor, scales: Tensor) -> Callable[[], Tensor]:
        return partial(wide, codes.clone(), scales.clone())  # clones, because inputs would not count as memory held

    return training(base, adapters, tokens, shape, make, Frozen.apply)
