"""Codes lie in the order of tensor core fragments: lanes load 16 bytes at once, before the last kernel ends."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch19.baseline_mxfp4_moe_decode import GROUP, Packed, nibbles
from ch19.baseline_mxfp4_moe_decode import workload as workload
from common.models.formats import metered
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80)
STEP, TILE = 64, 16  # features and outputs of a fragment's four words
SIGNS, SIZES = (15, 12, 14, 13), (9, 6, 3, 0)  # where in 16 bits the sign and the three other bits of each code stand


def packed(codes: Tensor, exponents: Tensor, gated: bool) -> Packed:
    """One expert's words [units, steps, 2 tiles, 32 lanes, 4] and exponents [units, steps, 8, 2 tiles], four to a word.

    A unit is two tiles of 16 outputs: of the gate and of up, or neighbours. A word's halves hold four codes each: of
    features 2 i and 2 i + 1 of outputs g and 8 + g, and of the next two features.
    """
    outputs, more = len(codes), -2 * codes.shape[1] % STEP
    rows = (2, outputs // (2 * TILE), 2, 8) if gated else (outputs // (2 * TILE), 2, 2, 8)
    # unit, tile, down, g; then step, group, lane of four, word, pair, next
    filled = F.pad(nibbles(codes), (0, more)).int().unflatten(1, (-1, 2, 4, 2, 2, 2)).unflatten(0, rows)
    scales = F.pad(exponents, (0, more // GROUP)).unflatten(1, (-1, 2)).unflatten(0, rows) + 14
    if gated:
        filled, scales = filled.transpose(0, 1), scales.transpose(0, 1)
    split = filled.permute(0, 4, 1, 3, 6, 5, 7, 9, 8, 2).flatten(-2)  # ..., next, parts
    signs, sizes = (torch.tensor(bits, dtype=torch.int32, device=codes.device) for bits in (SIGNS, SIZES))
    halves = ((split >> 3 << signs) | ((split & 7) << sizes)).sum(-1).to(torch.int16)
    words = halves.contiguous().view(torch.int32).flatten(5).flatten(3, 4)
    return words, scales.permute(0, 4, 3, 1, 2, 5).flatten(-2).contiguous().view(torch.int32)[..., 0]


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Packed, down: Packed) -> Metered:
    mixture = load_cuda(__file__, "mixture")
    narrow = [
        torch.stack(each)
        for part, gated in ((gate_up, True), (down, False))
        for each in zip(*(packed(*expert, gated) for expert in zip(*part)))
    ]
    (tokens, width), experts, wide = x.shape, len(down[0]), 2 * down[0].shape[2]
    hidden, answers = (x.new_empty(experts, tokens, features) for features in (wide, width))
    out = torch.empty_like(x)

    def step() -> Tensor:
        mixture(x, ids, shares, *narrow, hidden, answers, out, tokens, ids.shape[1], experts, width, wide)
        return out

    return metered(step, "e2m1", GROUP)
