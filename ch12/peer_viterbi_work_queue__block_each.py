"""A block for each sequence: the hardware's scheduler is the queue, in the order given."""

from torch import Tensor

from ch12.baseline_viterbi_work_queue import decoding
from ch12.baseline_viterbi_work_queue import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(emissions: Tensor, transitions: Tensor, starts: Tensor) -> Step:
    return decoding(emissions, transitions, starts, block_each=True)
