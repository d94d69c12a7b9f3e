"""torch.compile of the widened and scaled weight times the tokens, tuned over its templates."""

import torch
from torch import Tensor

from ch13.baseline_int8_weight_only_decode import metered
from ch13.baseline_int8_weight_only_decode import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)


def int8_linear(x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    # Scaling the product instead makes Inductor call _weight_int8pack_mm, eight times slower still on an H200.
    return torch.nn.functional.linear(x, codes.to(x.dtype) * scales[:, None])


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    compiled = torch.compile(int8_linear, mode="max-autotune-no-cudagraphs", dynamic=False)

    def step() -> Tensor:
        return compiled(x, codes, scales)

    return metered(step, x, len(codes))
