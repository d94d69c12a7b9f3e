"""Six-bit codes lie in the order of tensor core fragments: lanes load 16 bytes and widen them in registers."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch19.baseline_fp6_weight_gemm import placed, unpacked
from ch19.baseline_fp6_weight_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
STEP, UNIT = 128, 32  # features and outputs that lie together


def packed(codes: Tensor) -> Tensor:
    """Words [units, steps, 2 tiles, 3 planes, 32 lanes, 4 groups]; outputs and features are filled up.

    A word's halves are neighbouring features. Half i of plane p has codes i of parts p and 3 + p as fp16 has them, one
    above the other, and in the bits between two bits of part 6 and two of part 7. A part is a register of a product.
    """
    filled = F.pad(unpacked(codes), (0, -len(codes[0]) // 3 * 4 % STEP, 0, -len(codes) % UNIT))
    # unit, tile, down, g; step, group, q, product, pair, next
    split = filled.unflatten(1, (-1, 4, 4, 2, 2, 2)).unflatten(0, (-1, 2, 2, 8))
    parts = split.permute(0, 4, 1, 3, 6, 5, 9, 7, 8, 2).flatten(-3)  # unit, step, tile, g, q, group, next; parts
    whole, six, seven = placed(parts[..., :6]), parts[..., 6].int(), parts[..., 7].int()
    pairs = [(six >> shift & 3) << 13 | (seven >> shift & 3) << 5 for shift in (4, 2, 0)]
    halves = whole[..., :3] | whole[..., 3:] >> 8 | torch.stack(pairs, dim=-1)
    ordered = halves.to(torch.int16).permute(0, 1, 2, 7, 3, 4, 5, 6).contiguous()
    return ordered.view(torch.int32).flatten()


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Step:
    linear, words = load_cuda(__file__, "fp6_linear"), torch.cat([packed(part) for part in codes.split(4096)])
    out = x.new_empty(len(x), len(codes))

    def step() -> Tensor:
        linear(x, words, scales, out, len(x), x.shape[1], len(codes))
        return out

    return step
