"""A thread unpacks 32 weights from three words: every word, shift and mask is a constant, and no test is left."""

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
