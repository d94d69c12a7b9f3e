"""Codes times their group's scale become e4m3 in registers; rows are cast to e4m3, and products run at fp8's rate."""

import torch
from torch import Tensor

from ch19.baseline_w4a8_moe import GROUP, OUTPUTS, joined, padded
from ch19.baseline_w4a8_moe import workload as workload
from common.models.formats import metered
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(targets=["sm_90a"])
LEAST, MOST = 2, 13  # exponents of e4m3 for a code of 1, so that codes of 0.5 and of 6 still have one
ZERO = 127 + MOST - 7  # the E8M0 code of a row's largest exponent with which its factor is 1; the biases are 127 and 7


def packed(codes: Tensor, exponents: Tensor) -> tuple[Tensor, Tensor]:
    """One expert's records [tiles, steps, words] and each output's factor [tiles * 256].

    A word has four codes of a lane's fragment of 64 x 32, and the four 16 features on: three bits of each in a nibble,
    the signs of the former in the last bit of each byte, and those of the latter in the last bit of its low nibble. An
    exponent becomes that of e4m3 which a code of 1 gets. Of a group 2^12 below its row's largest, nothing is left.
    """
    filled, scale = padded(codes, exponents)
    largest = scale.amax(1, keepdim=True).int()
    exponent = scale.int() - largest + MOST
    kept = filled.int() * (exponent >= LEAST).repeat_interleave(GROUP, 1)
    # step, two pairs of fragments, fragment, right, lane of four, next; then tile, 64 outputs, warp, down, row
    split = kept.long().unflatten(1, (-1, 2, 2, 2, 4, 4)).unflatten(0, (-1, OUTPUTS // 64, 4, 2, 8))
    split = split.permute(0, 5, 1, 6, 2, 4, 9, 7, 3, 8, 10)  # ..., fragment, down, right, next
    right, four = (torch.arange(count, device=codes.device) for count in (2, 4))
    sizes, signs = right[:, None] * 16 + four * 4, four * 8 + 7 - 4 * right[:, None]
    words = (((split & 7) << sizes) + (split >> 3 << signs)).sum((-1, -2)).to(torch.int32).flatten(2)
    records = joined(words, exponent.clamp(min=LEAST).to(torch.uint8))
    return records, torch.exp2((largest[:, 0] - ZERO).float())


def prepare(x: Tensor, ends: Tensor, codes: Tensor, exponents: Tensor) -> Metered:
    multiply, (rows, width), outputs = load_cuda(__file__, "multiply"), x.shape, codes.shape[1]
    each = [packed(*expert) for expert in zip(codes, exponents)]
    records, by_output = (torch.stack(parts) for parts in zip(*each))
    cast, by_row = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(rows, dtype=torch.float32)
    out = x.new_empty(rows, outputs)

    def step() -> Tensor:
        multiply(x, cast, by_row, ends, records, by_output, out, rows, len(ends), width, outputs)
        return out

    return metered(step, "e2m1", GROUP)
