"""Blocks take sequences from an atomic queue, in the order given: none idles while another has several to do."""

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
        viterbi(emissions, transitions, starts, back, path, taken, len(starts) - 1)
        return path

    return step
