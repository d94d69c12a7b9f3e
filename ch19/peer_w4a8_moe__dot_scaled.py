"""Triton's tl.dot_scaled of bf16 rows and MXFP4 weights, which on Hopper widens them to bf16 before the product."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch19.baseline_w4a8_moe import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)


@triton.jit
def grouped_product(
    rows, codes, exponents, out, ends, experts, outputs, width,
    EXPERTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    expert, across, steps = tl.arange(0, EXPERTS), tl.cdiv(outputs, N), tl.cdiv(width, K)
    end = tl.load(ends + expert, expert < experts, 0)
    begin = tl.load(ends + expert - 1, (expert > 0) & (expert < experts), 0)
    down = tl.cdiv(end - begin, M)
    last = tl.cumsum(down, 0) * across  # one past an expert's last tile
    for tile in tl.range(tl.program_id(0), tl.sum(down) * across, tl.num_programs(0), flatten=True):
        mine = (last - down * across <= tile) & (tile < last)  # of one expert alone
        owner, limit = tl.sum(tl.where(mine, expert, 0)), tl.sum(tl.where(mine, end, 0))
        rest, height = tl.sum(tl.where(mine, tile - last + down * across, 0)), tl.sum(tl.where(mine, down, 0))
        first, left = tl.sum(tl.where(mine, begin, 0)) + rest % height * M, rest // height * N
        column = left + tl.arange(0, N)
        total = tl.zeros((M, N), tl.float32)
        for step in range(steps):
            a, b = rows.load([first, step * K]), codes.load([owner * outputs + left, step * K // 2])
            place = exponents + ((owner * steps + step) * outputs + column)[:, None] * (K // 32)
            scale = tl.load(place + tl.arange(0, K // 32)[None, :], (column < outputs)[:, None], 0)
            total = tl.dot_scaled(a, None, "bf16", b.T, scale, "e2m1", total)
        row = first + tl.arange(0, M)
        inside = (row < limit)[:, None] & (column < outputs)[None, :]
        tl.store(out + row.to(tl.int64)[:, None] * outputs + column[None, :], total.to(out.dtype.element_ty), inside)


TILE = {"M": 128, "N": 128, "K": 128, "num_warps": 8, "num_stages": 3}


def prepare(x: Tensor, ends: Tensor, codes: Tensor, exponents: Tensor) -> Step:
    (rows, width), (experts, outputs, _) = x.shape, codes.shape
    groups = TILE["K"] // 32
    filled = torch.nn.functional.pad(exponents, (0, -exponents.shape[2] % groups))
    by_step = filled.unflatten(2, (-1, groups)).transpose(1, 2).contiguous()  # [experts, steps, outputs, groups]
    from_rows = TensorDescriptor.from_tensor(x, [TILE["M"], TILE["K"]])
    from_codes = TensorDescriptor.from_tensor(codes.view(-1, width // 2), [TILE["N"], TILE["K"] // 2])
    out, block = x.new_empty(rows, outputs), triton.next_power_of_2(experts)
    programs = torch.cuda.get_device_properties().multi_processor_count

    def step() -> Tensor:
        grouped_product[(programs,)](
            from_rows, from_codes, by_step, out, ends, experts, outputs, width, block, **TILE
        )  # fmt: skip
        return out

    return step
