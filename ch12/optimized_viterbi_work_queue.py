"""Blocks take sequences from an atomic queue, the longest first: no block idles while another has several to do."""

import torch
from torch import Tensor

from ch12.baseline_viterbi_work_queue import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def decoding(emissions: Tensor, transitions: Tensor, starts: Tensor, longest_first: bool) -> Step:
    viterbi, back = load_cuda(__file__, "viterbi"), torch.empty_like(emissions, dtype=torch.uint8)
    path, taken = (starts.new_empty(size, dtype=torch.int32) for size in (len(emissions), 1))
    as_given = torch.arange(len(starts) - 1, device=starts.device)

    def step() -> Tensor:
        order = starts.diff().argsort(descending=True) if longest_first else as_given
        viterbi(emissions, transitions, starts, order, back, path, taken, len(order))
        return path

    return step


def prepare(emissions: Tensor, transitions: Tensor, starts: Tensor) -> Step:
    return decoding(emissions, transitions, starts, longest_first=True)
