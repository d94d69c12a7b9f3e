"""Of symmetric products only the tiles of one half are computed, for all matrices of a shape in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from ch20.baseline_muon_step import COEFFICIENTS, DECAY, MOMENTUM, RATE, ROUNDS, rate
from ch20.baseline_muon_step import workload as workload
from common.python.workload import Step

TILE, DEPTH = tl.constexpr(128), tl.constexpr(64)
COLUMNS = 128  # of a tile of the last product


@triton.jit
def symmetric(a, out, n, m, matrix, row, column, alpha, beta, PLUS: tl.constexpr):
    """alpha * a @ a.T, and beta * a where a is symmetric itself: tiles below the diagonal, and their mirror images."""
    tile = tl.program_id(0)
    i = ((tl.sqrt(8.0 * tile + 1.0) - 1.0) / 2.0).to(tl.int32)
    i = tl.where(i * (i + 1) // 2 > tile, i - 1, i)
    i = tl.where((i + 1) * (i + 2) // 2 <= tile, i + 1, i)
    j = tile - i * (i + 1) // 2
    a += tl.program_id(1).to(tl.int64) * matrix
    out += tl.program_id(1).to(tl.int64) * n * n
    left, right, step = i * TILE + tl.arange(0, TILE), j * TILE + tl.arange(0, TILE), tl.arange(0, DEPTH)
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, m, DEPTH):
        k = first + step
        of_left = tl.load(
            a + left[:, None] * row + k[None, :] * column, mask=(left < n)[:, None] & (k < m)[None, :], other=0.0
        )
        of_right = tl.load(
            a + right[None, :] * row + k[:, None] * column, mask=(right < n)[None, :] & (k < m)[:, None], other=0.0
        )
        total = tl.dot(of_left, of_right, total, input_precision="ieee")
    total *= alpha
    mask = (left < n)[:, None] & (right < n)[None, :]
    if PLUS:
        old = tl.load(a + left[:, None] * row + right[None, :] * column, mask=mask, other=0.0)
        total += beta * old.to(tl.float32)
    result = total.to(out.dtype.element_ty)
    tl.store(out + left[:, None] * n + right[None, :], result, mask=mask)
    if i != j:
        tl.store(out + right[None, :] * n + left[:, None], result, mask=mask)


@triton.jit
def multiply(p, x, out, n, m, matrix, row, column, beta, COLUMNS: tl.constexpr):
    """p @ x + beta * x, of a symmetric p; x and out have the same strides."""
    tiles = tl.cdiv(n, TILE)
    i, j = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    p += tl.program_id(1).to(tl.int64) * n * n
    x += tl.program_id(1).to(tl.int64) * matrix
    out += tl.program_id(1).to(tl.int64) * matrix
    left, right = i * TILE + tl.arange(0, TILE), j * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.arange(0, DEPTH)
    total = tl.zeros((TILE, COLUMNS), tl.float32)
    for first in range(0, n, DEPTH):
        k = first + step
        of_p = tl.load(p + left[:, None] * n + k[None, :], mask=(left < n)[:, None] & (k < n)[None, :], other=0.0)
        of_x = tl.load(
            x + k[:, None] * row + right[None, :] * column, mask=(k < n)[:, None] & (right < m)[None, :], other=0.0
        )
        total = tl.dot(of_p, of_x, total, input_precision="ieee")
    at, mask = left[:, None] * row + right[None, :] * column, (left < n)[:, None] & (right < m)[None, :]
    total += beta * tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, total, mask=mask)


def options() -> dict[str, int]:
    roomy = knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 135_000
    return {"num_warps": 8, "num_stages": 3 if roomy else 2}


def halved(a: Tensor, alpha: float = 1.0, beta: float | None = None) -> Tensor:
    batch, n, m = a.shape
    out, tiles = a.new_empty(batch, n, n), triton.cdiv(n, TILE.value)
    grid = (tiles * (tiles + 1) // 2, batch)
    symmetric[grid](a, out, n, m, *a.stride(), alpha, beta or 0.0, beta is not None, **options())
    return out


def multiplied(p: Tensor, x: Tensor, beta: float) -> Tensor:
    batch, n, m = x.shape
    out = torch.empty_like(x)
    grid = (triton.cdiv(n, TILE.value) * triton.cdiv(m, COLUMNS), batch)
    multiply[grid](p, x, out, n, m, *x.stride(), beta, COLUMNS, **options())
    return out


def prepare(weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> Step:
    first, second, third = COEFFICIENTS
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, weight in enumerate(weights):
        alike.setdefault(tuple(weight.shape), []).append(index)

    def orthogonal(x: Tensor) -> Tensor:
        x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
        for _ in range(ROUNDS):
            x = multiplied(halved(halved(x), third, second), x, first)
        return x

    def step() -> tuple[Tensor, ...]:
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        torch._foreach_mul_(weights, 1 - RATE * DECAY)
        for shape, indices in alike.items():
            stack = torch.stack([updates[index] for index in indices])
            stack = orthogonal(stack.mT).mT if shape[0] > shape[1] else orthogonal(stack)
            torch._foreach_sub_([weights[index] for index in indices], list(stack.unbind()), alpha=rate(shape))
        return *weights, *momenta

    return step
