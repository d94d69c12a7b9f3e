"""torch.compile on the whole layer: its partitioner decides what waits for the backward pass and what is made again."""

import torch
from torch import Tensor

from ch20.baseline_moe_layer_train import layer, train_step
from ch20.baseline_moe_layer_train import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1, memory_gib=40)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, slope: Tensor) -> Step:
    return train_step(torch.compile(layer, dynamic=False), slope, ids, x, shares, gate_up, down)
