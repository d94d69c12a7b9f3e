"""Six-bit codes lie in three planes of words: a word has two whole codes in each half, and thirds of two more."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch19.baseline_fp6_weight_gemm import unpacked
from ch19.baseline_fp6_weight_gemm import workload as workload
from common.models.formats import metered
from common.python.workload import Metered

BLOCK, PARTS = 256, 8  # features of a step; each part is 32 of them
TILE = {"N": 64, "num_warps": 4, "num_stages": 3}


def placed(codes: Tensor) -> Tensor:
    """Bits of fp16 numbers 2^12 too small, int32: exponents end, and mantissas begin, where fp16's do."""
    return (codes.int() & 32) << 10 | (codes.int() & 31) << 8


def packed(codes: Tensor) -> Tensor:
    """Words [outputs, steps, 3, 16]. Half i of plane p has codes i of parts p and 3 + p as fp16 has them, one above the
    other, and in the bits between two bits of part 6 and two of part 7. Features are filled up to whole steps."""
    split = F.pad(unpacked(codes), (0, -len(codes[0]) // 3 * 4 % BLOCK)).unflatten(1, (-1, PARTS, BLOCK // PARTS))
    whole, six, seven = placed(split[:, :, :6]), split[:, :, 6].int(), split[:, :, 7].int()
    pairs = [(six >> shift & 3) << 13 | (seven >> shift & 3) << 5 for shift in (4, 2, 0)]
    halves = whole[:, :, :3] | whole[:, :, 3:] >> 8 | torch.stack(pairs, dim=2)
    return halves.to(torch.int16).view(torch.int32)


@triton.jit
def weights_of(a, b, c, PART: tl.constexpr):
    """A part's weights, fp16 [N, 32], times 2^-12."""
    if PART < 6:
        words = a if PART % 3 == 0 else (b if PART % 3 == 1 else c)
        pair = (words if PART < 3 else words << 8) & 0x9F009F00
    elif PART == 6:
        pair = a << 1 & 0x80008000 | a >> 1 & 0x10001000 | b >> 3 & 0x0C000C00 | c >> 5 & 0x03000300
    else:
        pair = a << 9 & 0x80008000 | a << 7 & 0x10001000 | b << 5 & 0x0C000C00 | c << 3 & 0x03000300
    low, high = (pair & 0xFFFF).to(tl.uint16), (pair >> 16).to(tl.uint16)
    both = tl.join(low.to(tl.float16, bitcast=True), high.to(tl.float16, bitcast=True))
    return tl.reshape(both, (a.shape[0], 2 * a.shape[1]))


@triton.jit
def multiply(x, words, scales, out, rows, outputs, features, steps, N: tl.constexpr):
    output, row = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, 16)[None, :]
    first, inside = words + output.to(tl.int64)[:, None] * steps * 48 + tl.arange(0, 16)[None, :], output < outputs
    total = tl.zeros((N, 16), tl.float32)
    for step in range(0, steps):
        a = tl.load(first + step * 48, inside[:, None], 0)
        b = tl.load(first + step * 48 + 16, inside[:, None], 0)
        c = tl.load(first + step * 48 + 32, inside[:, None], 0)
        for part in tl.static_range(8):
            feature = step * 256 + part * 32 + tl.arange(0, 32)[:, None]
            right = tl.load(x + row * features + feature, (row < rows) & (feature < features), 0.0)
            total = tl.dot(weights_of(a, b, c, part), right, total)
    scale = tl.load(scales + output, inside, 0.0) * 4096
    place = out + row.to(tl.int64) * outputs + output[:, None]
    tl.store(place, total * scale[:, None], (row < rows) & inside[:, None])


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    words, (rows, features), outputs = packed(codes).view(torch.uint32), x.shape, len(codes)
    out, steps = x.new_empty(rows, outputs), words.shape[1]

    def step() -> Tensor:
        grid = (triton.cdiv(outputs, TILE["N"]),)
        multiply[grid](x, words, scales, out, rows, outputs, features, steps, **TILE)
        return out

    return metered(step, "e3m2", x.shape[1])
