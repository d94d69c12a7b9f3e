"""1F1B: a backward follows each forward as soon as it can, so that fewer activations are kept; the idle time stays."""

import torch.distributed as dist
from torch import Tensor

from ch04.baseline_pipeline_schedule import BACKWARD, FORWARD, MICROBATCHES, Turn, pipelined
from ch04.baseline_pipeline_schedule import workload as workload
from common.python.workload import Step


def one_by_one(ahead: int) -> list[Turn]:
    """As many forwards as ranks follow, then forward and backward in turn, then the backwards that are left."""
    turns = [(FORWARD, 0, index) for index in range(ahead)]
    for index in range(MICROBATCHES):
        turns += [(FORWARD, 0, index + ahead)] * (index + ahead < MICROBATCHES) + [(BACKWARD, 0, index)]
    return turns


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    return pipelined(x, weights, 1, one_by_one(dist.get_world_size() - 1 - dist.get_rank()))
