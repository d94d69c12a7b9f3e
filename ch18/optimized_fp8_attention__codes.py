"""Both products take fp8: the codes as they are, and weights lifted to the upper end of e4m3's range and cast."""

import torch
import triton
from torch import Tensor

from ch18.baseline_fp8_attention import attend, boxes, tile
from ch18.baseline_fp8_attention import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=89)
LIFT = 8  # weights are 2 ** 8 at most, of e4m3's 448: those 2 ** 14 times smaller still have all their bits


def prepare(q: Tensor, k: Tensor, v: Tensor, of_scores: Tensor, of_values: Tensor) -> Step:
    (heads, tokens, width), options = q.shape, tile()
    out, described = torch.empty_like(q, dtype=torch.bfloat16), boxes(q, k, v, options)

    def step() -> Tensor:
        grid = triton.cdiv(tokens, options["QUERIES"]), heads
        attend[grid](*described, out, of_scores, of_values, tokens, width, LIFT=LIFT, **options)
        return out

    return step
