"""Reads the harness's clock around its work and leaves it as it is."""

import torch
from torch import Tensor

from ch01.baseline_patched_harness import workload as workload
from common.python.proof.originals import now_ns
from common.python.workload import Step


def prepare(a: Tensor, b: Tensor) -> Step:
    out, spent = torch.empty_like(a), [0]

    def step() -> Tensor:
        start = now_ns()
        torch.matmul(a, b, out=out)
        spent[0] += now_ns() - start
        return out

    return step
