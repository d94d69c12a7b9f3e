"""The bit width is a constant of the template: multiplication and mask fold, but each weight has its own address."""

import torch
from torch import Tensor

from ch08.baseline_unpack_3bit import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(words: Tensor, n: int) -> Step:
    unpack, out = load_cuda(__file__, "unpack"), words.new_empty(n, dtype=torch.bfloat16)

    def step() -> Tensor:
        unpack(words, out, n)
        return out

    return step
