"""torch.compile fuses the cast and both stores as far as its tiles allow; the amax is a reduction of its own."""

import torch
from torch import Tensor

from ch19.baseline_fp8_cast_transpose import codes, metered
from ch19.baseline_fp8_cast_transpose import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89)


def cast_both(x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    cast = codes(x, scale)
    return cast.view(torch.uint8), cast.T.contiguous().view(torch.uint8), x.abs().max().float()


def prepare(x: Tensor, scale: Tensor) -> Metered:
    compiled = torch.compile(cast_both, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, ...]:
        return compiled(x, scale)

    return metered(step, x, scale)
