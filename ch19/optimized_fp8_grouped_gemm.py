"""Rows are cast to fp8 with a scale each, weights were ahead; programs walk over all experts' tiles and scale sums."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch19.baseline_fp8_grouped_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=89)
LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448


@triton.jit
def cast_row(x, codes, scales, width, LARGEST: tl.constexpr, WIDTH: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    numbers = tl.load(x + row * width + column, column < width, 0.0).to(tl.float32)
    least = tl.maximum(tl.math.div_rn(tl.max(tl.abs(numbers), 0), LARGEST), 2.0**-100)  # the floor is for zeros
    # up to a power of two, so that scaling is exact
    scale = ((least.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)
    tl.store(scales + row, scale)
    tl.store(codes + row * width + column, (numbers / scale).to(codes.dtype.element_ty), column < width)


@triton.jit
def grouped_product(
    rows, weights, out, by_row, by_output, ends, experts, outputs, width,
    EXPERTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    expert, across = tl.arange(0, EXPERTS), tl.cdiv(outputs, N)
    end = tl.load(ends + expert, expert < experts, 0)
    begin = tl.load(ends + expert - 1, (expert > 0) & (expert < experts), 0)
    down = tl.cdiv(end - begin, M)
    last = tl.cumsum(down, 0) * across  # one past an expert's last tile
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for tile in tl.range(tl.program_id(0), tl.sum(down) * across, tl.num_programs(0), flatten=True):
        mine = (last - down * across <= tile) & (tile < last)  # of one expert alone
        owner, limit = tl.sum(tl.where(mine, expert, 0)), tl.sum(tl.where(mine, end, 0))
        # Tiles go down an expert's rows, then to its next outputs: they share the weights, which come from memory once.
        rest, height = tl.sum(tl.where(mine, tile - last + down * across, 0)), tl.sum(tl.where(mine, down, 0))
        first, left = tl.sum(tl.where(mine, begin, 0)) + rest % height * M, rest // height * N
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(width, K)):
            # an expert's last tile may have rows of the next one, and a last column of outputs too: neither is stored
            a, b = rows.load([first, step * K]), weights.load([owner * outputs + left, step * K])
            total = tl.dot(a, b.T, total)
        row, column = first + tl.arange(0, M), left + tl.arange(0, N)
        of_row = tl.load(by_row + row, row < limit, 0.0)
        of_column = tl.load(by_output + owner * outputs + column, column < outputs, 0.0)
        place = out + row.to(tl.int64)[:, None] * outputs + column[None, :]
        inside = (row < limit)[:, None] & (column < outputs)[None, :]
        tl.store(place, (total * of_row[:, None] * of_column[None, :]).to(out.dtype.element_ty), inside)


def tile() -> dict[str, int]:
    """Wide where wgmma or tcgen05 leave operands in shared memory."""
    wide = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    shape = {"M": 128, "N": 256, "num_warps": 8} if wide else {"M": 64, "N": 64, "num_warps": 4}
    return {**shape, "K": 128, "num_stages": 3}


def cast_to(x: Tensor) -> tuple[Tensor, Tensor]:
    """Room for x [rows, width] in fp8, and for a scale for each row."""
    return torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(len(x), dtype=torch.float32)


def prepare(x: Tensor, ends: Tensor, weights: Tensor) -> Step:
    (tokens, width), (experts, outputs, _), options = x.shape, weights.shape, tile()
    flat, wide = weights.view(-1, width), triton.next_power_of_2(width)
    (rows, by_row), (codes, by_output), out = cast_to(x), cast_to(flat), x.new_empty(tokens, outputs)
    cast_row[(len(flat),)](flat, codes, by_output, width, LARGEST, wide, num_warps=8)
    from_rows = TensorDescriptor.from_tensor(rows, [options["M"], options["K"]])
    from_weights = TensorDescriptor.from_tensor(codes, [options["N"], options["K"]])
    sizes = experts, outputs, width, triton.next_power_of_2(experts)
    # In the interpreter three programs, so that each has several tiles.
    programs = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count

    def step() -> Tensor:
        cast_row[(tokens,)](x, rows, by_row, width, LARGEST, wide, num_warps=8)
        grouped_product[(programs,)](from_rows, from_weights, out, by_row, by_output, ends, *sizes, **options)
        return out

    return step
