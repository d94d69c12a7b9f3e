"""A CUDA graph replays all layers; each rank reads the others' parts from symmetric memory and sums them itself."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory
from torch.nn.functional import rms_norm

from ch20.baseline_tp_decode_70b import decoding
from ch20.baseline_tp_decode_70b import workload as workload
from common.models.decoder import EPSILON
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)


def prepare(**given: Any) -> Step:
    x, group = given["x"], dist.group.WORLD
    mine = symmetric_memory.empty(x.shape, dtype=x.dtype, device=x.device)
    symmetric_memory.rendezvous(mine, group)

    def tail(part: Tensor, states: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        states = states + torch.ops.symm_mem.one_shot_all_reduce_copy(mine, part, "sum", group.group_name)
        return states, rms_norm(states, states.shape[1:], gain, EPSILON)

    return decoding(given, tail, replayable)
