"""Experts stay at four bits: two operations on a word make two fp16 weights in registers, and sums are scaled after."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch19.baseline_mxfp4_moe_decode import Packed, layer, nibbles
from ch19.baseline_mxfp4_moe_decode import workload as workload
from common.python.workload import Metered

BLOCK, PARTS = 128, 4  # features of a step: four groups, each with an exponent of its own
SIGNS, SIZES = (15, 12, 14, 13), (9, 6, 3, 0)  # where in 16 bits the sign and the three other bits of each group stand
TILE = {"N": 128, "num_warps": 4, "num_stages": 4}


def packed(codes: Tensor, exponents: Tensor) -> Packed:
    """One expert's words [outputs, steps, 16], of features i, 32 + i, 64 + i and 96 + i of a step in each half; and its
    exponents, four to a word [outputs, steps]. Features are filled up to whole steps."""
    filled = F.pad(nibbles(codes), (0, -2 * codes.shape[1] % BLOCK)).int()
    split = filled.unflatten(1, (-1, PARTS, BLOCK // PARTS))
    signs, sizes = (torch.tensor(bits, dtype=torch.int32, device=codes.device)[:, None] for bits in (SIGNS, SIZES))
    halves = ((split >> 3 << signs) | ((split & 7) << sizes)).sum(2)
    scales = F.pad(exponents, (0, -exponents.shape[1] % PARTS))
    return halves.to(torch.int16).view(torch.int32), scales.view(torch.int32)


@triton.jit
def weights_of(words, PART: tl.constexpr):
    """A group's weights, fp16 [N, 32], times 2^-14: the three bits end the exponent and begin the mantissa."""
    if PART == 0:
        pair = words & 0x8E008E00
    elif PART == 1:
        pair = words << 3 & 0x8E008E00
    elif PART == 2:
        pair = words << 1 & 0x80008000 | words << 6 & 0x0E000E00
    else:
        pair = words << 2 & 0x80008000 | words << 9 & 0x0E000E00
    low, high = (pair & 0xFFFF).to(tl.uint16), (pair >> 16).to(tl.uint16)
    both = tl.join(low.to(tl.float16, bitcast=True), high.to(tl.float16, bitcast=True))
    return tl.reshape(both, (words.shape[0], 2 * words.shape[1]))


@triton.jit
def multiply_packed(
    rows, words, exponents, out, ids, choices, tokens, outputs, features, own, steps,
    CHOICES: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    expert, column = tl.program_id(1).to(tl.int64), tl.program_id(0) * N + tl.arange(0, N)
    token, choice = tl.arange(0, 16)[None, :], tl.arange(0, CHOICES)
    if tl.sum((tl.load(ids + choice, choice < choices, -1) == expert).to(tl.int32), 0) > 0:  # else nothing is read
        first, inside = (expert * outputs + column) * steps, column < outputs
        total = tl.zeros((N, 16), tl.float32)
        for step in range(0, steps):
            codes = tl.load(words + (first + step)[:, None] * 16 + tl.arange(0, 16)[None, :], inside[:, None], 0)
            four = tl.load(exponents + first + step, inside, 0)
            for part in tl.static_range(4):
                feature = step * 128 + part * 32 + tl.arange(0, 32)[:, None]
                at = rows + (expert * own + token) * features + feature
                b = tl.load(at, (token < tokens) & (feature < features), 0.0)
                scale = ((four >> 8 * part & 0xFF) + 14 << 23).to(tl.float32, bitcast=True)  # of 2^14 times the group's
                total += tl.dot(weights_of(codes, part), b) * scale[:, None]
        place = out + (expert * tokens + token) * outputs + column[:, None]
        tl.store(place, total.to(out.dtype.element_ty), (token < tokens) & inside[:, None])


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Packed, down: Packed) -> Metered:
    narrow = [[torch.stack(each) for each in zip(*(packed(*e) for e in zip(*part)))] for part in (down, gate_up)]
    block = triton.next_power_of_2(ids.numel())

    def multiply(rows: Tensor, into: Tensor) -> None:
        words, exponents = narrow[rows is x]
        experts, outputs, steps = exponents.shape
        shape, own = (ids.numel(), len(x), outputs, rows.shape[1]), 0 if rows is x else len(x)
        grid = (triton.cdiv(outputs, TILE["N"]), experts)
        multiply_packed[grid](
            rows, words.view(torch.uint32), exponents, into, ids, *shape, own, steps, block, **TILE
        )  # fmt: skip

    return layer(x, ids, shares, down, multiply)
