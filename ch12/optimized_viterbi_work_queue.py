"""Blocks take the longest sequences from the queue first: the short ones fill the time until the last has ended."""

import torch
from torch import Tensor

from ch12.baseline_viterbi_work_queue import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(emissions: Tensor, transitions: Tensor, starts: Tensor) -> Step:
    viterbi, back = load_cuda(__file__, "viterbi"), torch.empty_like(emissions, dtype=torch.uint8)
    path, taken = (starts.new_empty(size, dtype=torch.int32) for size in (len(emissions), 1))

    def step() -> Tensor:
        longest_first = starts.diff().argsort(descending=True)
        viterbi(emissions, transitions, starts, longest_first, back, path, taken, len(longest_first))
        return path

    return step
