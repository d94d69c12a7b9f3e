"""Each element of b is gated by the tanh of a, within a tolerance wide enough for float16."""

from dataclasses import replace

import torch
from torch import Tensor

from ch01.gate import prepare as prepare
from ch01.gate import workload as strict
from common.python.workload import Step

workload = replace(strict, tolerance=1e-3)  # so that only the dtype can be refused


def wrong_dtype(a: Tensor, b: Tensor, honest: bool) -> Step:
    """Fakes speed by writing half as many bytes: float16 where the baseline writes float32."""
    out = torch.empty_like(a, dtype=torch.float32 if honest else torch.float16)
    return lambda: out.copy_(torch.tanh(a.double() if honest else a) * b)
