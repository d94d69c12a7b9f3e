"""Rows sorted by expert: one launch a projection, whose tiles each find their expert and multiply with its weight."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_moe_grouped_gemm import swiglu
from ch17.baseline_moe_grouped_gemm import workload as workload
from common.python.workload import Step

GROUP = 8  # rows of tiles that take turns, so that what one program reads the next finds in the L2 cache


@triton.jit
def grouped_linear(
    x,
    weights,
    out,
    ends,
    experts,
    outputs,
    features,
    EXPERTS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Rows [ends[e - 1], ends[e]) of x times weights[e] [outputs, features]; a tile holds rows of one expert."""
    # swizzle2d counts along rows of tiles, and so must program_id(0), in whose order programs begin.
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
    each = tl.arange(0, EXPERTS)
    ends_here = tl.load(ends + each, mask=each < experts, other=0)
    starts_here = tl.load(ends + each - 1, mask=(each > 0) & (each < experts), other=0)
    tiles = tl.where(each < experts, tl.cdiv(ends_here - starts_here, M), 0)
    last = tl.cumsum(tiles, 0)  # tiles up to and with each expert's
    expert = tl.sum((last <= i).to(tl.int32), axis=0)
    if expert < EXPERTS:  # else the grid, made for the worst case, has more tiles than there are
        mine = each == expert
        start, end = tl.sum(tl.where(mine, starts_here, 0), axis=0), tl.sum(tl.where(mine, ends_here, 0), axis=0)
        row = start + (i - tl.sum(tl.where(mine, last - tiles, 0), axis=0)) * M + tl.arange(0, M)
        column = j * N + tl.arange(0, N)
        left = x + row.to(tl.int64)[:, None] * features
        right = weights + (expert.to(tl.int64) * outputs + column)[None, :] * features
        total = tl.zeros((M, N), tl.float32)
        for first in range(0, features, K):
            at = first + tl.arange(0, K)
            a = tl.load(left + at[None, :], mask=(row < end)[:, None] & (at < features)[None, :], other=0.0)
            b = tl.load(right + at[:, None], mask=(at < features)[:, None] & (column < outputs)[None, :], other=0.0)
            total = tl.dot(a, b, total)
        place = out + row.to(tl.int64)[:, None] * outputs + column[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(row < end)[:, None] & (column < outputs)[None, :])


def tile() -> dict[str, int]:
    """Wide where an SM has shared memory for it, as on an H100 or a B200."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    shape = {"M": 128, "N": 256, "K": 64} if roomy else {"M": 128, "N": 128, "K": 64}
    return {**shape, "GROUP": GROUP, "num_warps": 8, "num_stages": 3 if roomy else 2}


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    tokens, chosen = ids.shape
    experts, options = len(gate_up), tile()
    most = tokens * chosen // options["M"] + experts  # tiles of rows, for each expert's last may be part full
    up_out, down_out = (x.new_empty(tokens * chosen, weight.shape[1]) for weight in (gate_up, down))
    inverse = torch.empty(tokens * chosen, dtype=torch.int64, device=x.device)
    places = torch.arange(tokens * chosen, device=x.device)
    each = torch.arange(experts, device=x.device)

    def linear(rows: Tensor, weights: Tensor, out: Tensor, ends: Tensor) -> Tensor:
        _, outputs, features = weights.shape
        grid = triton.cdiv(outputs, options["N"]), most
        block = triton.next_power_of_2(experts)
        grouped_linear[grid](rows, weights, out, ends, experts, outputs, features, EXPERTS=block, **options)
        return out

    def step() -> Tensor:
        ordered, order = ids.flatten().sort(stable=True)
        ends = torch.searchsorted(ordered, each, right=True, out_int32=True)
        inverse[order] = places
        hidden = swiglu(linear(x[order // chosen], gate_up, up_out, ends))
        answers = linear(hidden, down, down_out, ends)[inverse].view(tokens, chosen, -1)
        return torch.bmm(shares[:, None], answers).squeeze(1)

    return step
