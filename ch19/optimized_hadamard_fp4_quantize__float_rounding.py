"""One kernel reads a block once: a small product rotates it, and registers hold it until two codes fill a byte."""

import triton
import triton.language as tl
from torch import Tensor

from ch19.baseline_hadamard_fp4_quantize import BLOCK, HIGH, LARGEST, LOW, SHARE, metered
from ch19.baseline_hadamard_fp4_quantize import workload as workload
from common.python.workload import Metered

BLOCKS = 128  # of a program


@triton.jit
def quantize(
    x, rotation, noise, codes, scales, blocks,
    SHARE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, LARGEST: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    block, column = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS), tl.arange(0, BLOCK)
    at, inside = block[:, None] * BLOCK + column[None, :], (block < blocks)[:, None]
    turn = tl.load(rotation + column[:, None] * BLOCK + column[None, :]).to(tl.float32)
    # TF32 has more bits than bf16 and fp32's range: nothing is lost on the way to the tensor cores
    rotated = tl.dot(tl.load(x + at, inside, 0.0).to(tl.float32), turn, input_precision="tf32")
    # rounded to nearest even, as a cast to e4m3: three bits of mantissa stay
    bits = tl.clamp(tl.max(tl.abs(rotated), 1) * SHARE, LOW, HIGH).to(tl.int32, bitcast=True)
    short = (bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20
    scale = (short << 20).to(tl.float32, bitcast=True)
    size = tl.minimum(tl.abs(rotated) / scale[:, None], LARGEST)
    place = tl.where(size < 2, 2 * size, tl.where(size < 4, size + 2, size / 2 + 4))
    drawn = tl.load(noise + at, inside, 0).to(tl.float32)
    sign = tl.where(rotated < 0, 8, 0)
    low, high = ((place + (drawn + 0.5) / 256).to(tl.int32) | sign).reshape(BLOCKS, BLOCK // 2, 2).split()
    half = block[:, None] * (BLOCK // 2) + tl.arange(0, BLOCK // 2)[None, :]
    tl.store(codes + half, (low | high << 4).to(tl.uint8), inside)
    tl.store(scales + block, (short - (127 - 7) * 8).to(tl.uint8), block < blocks)  # the exponent's bias is 7 in e4m3


def prepare(x: Tensor, rotation: Tensor, noise: Tensor) -> Metered:
    rows, blocks = len(x), x.numel() // BLOCK
    codes, scales = (noise.new_empty(rows, part // rows) for part in (x.numel() // 2, blocks))
    grid, numbers = (triton.cdiv(blocks, BLOCKS),), (SHARE, LOW, HIGH, LARGEST)

    def step() -> tuple[Tensor, Tensor]:
        quantize[grid](x, rotation, noise, codes, scales, blocks, *numbers, BLOCK, BLOCKS, num_warps=4)
        return codes, scales

    return metered(step, x, rotation, noise)
