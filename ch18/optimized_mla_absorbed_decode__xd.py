"""Queries go into the latent space and outputs come out of it; each warp of a block has columns of the cache alone."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_mla_absorbed_decode import ROTARY
from ch18.baseline_mla_absorbed_decode import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
PARTS, KEYS = 8, 32  # of a request's cache, a block each; of a tile
REQUESTS, COLUMNS = 16, 64  # of a program that absorbs


@triton.jit
def absorb(
    q, to_keys, absorbed, requests, heads,
    WIDTH: tl.constexpr, LATENT: tl.constexpr, REQUESTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some requests' queries of one head times some columns of its matrix."""
    head, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    request, depth = tl.program_id(2) * REQUESTS + tl.arange(0, REQUESTS), tl.arange(0, WIDTH)
    row, live = request[:, None] * heads + head, request[:, None] < requests
    left = tl.load(q + row * WIDTH + depth[None, :], mask=live, other=0.0)
    right = tl.load(to_keys + (head * WIDTH + depth[:, None]) * LATENT + column[None, :])
    total = tl.dot(left, right).to(absorbed.dtype.element_ty)
    tl.store(absorbed + row * LATENT + column[None, :], total, mask=live)


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    attend = load_cuda(__file__, f"attend_{q.dtype}".replace("torch.", ""))
    (requests, heads, width), (_, keys, latent) = q.shape, cache.shape
    share = -(-keys // (PARTS * KEYS)) * KEYS
    parts = -(-keys // share)
    sums = q.new_empty(requests, heads, parts, latent, dtype=torch.float32)
    logs = q.new_empty(requests, heads, parts, dtype=torch.float32)
    absorbed, attended = q.new_empty(2, requests, heads, latent)
    grid = (heads, latent // COLUMNS, triton.cdiv(requests, REQUESTS))
    scale = (width + ROTARY) ** -0.5 * math.log2(math.e)  # weights are powers of 2
    sizes = (requests, heads, keys, latent, parts, share, scale)

    def step() -> Tensor:
        absorb[grid](q, to_keys, absorbed, requests, heads, width, latent, REQUESTS, COLUMNS, num_warps=4)
        attend(absorbed, q_rotary, cache, rotary, sums, logs, attended, *sizes)
        return (attended.transpose(0, 1) @ to_values).transpose(0, 1)

    return step
