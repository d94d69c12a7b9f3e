"""The branch moves into the graph as torch.cond: nothing breaks it, but the host still waits for each condition."""

from functools import partial

import torch
from torch import Tensor

from ch14.baseline_graph_breaks import LARGEST, Weights, attend, clamped, encode, feed_forward
from ch14.baseline_graph_breaks import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def clamped_if_beyond(hidden: Tensor) -> Tensor:
    # A branch may not return its input itself.
    return torch.cond((hidden.abs() >= LARGEST).any(), clamped, torch.clone, (hidden,))


def conditional(hidden: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return clamped_if_beyond(feed_forward(clamped_if_beyond(attend(hidden, qkv, out)), up, down))


def prepare(hidden: Tensor, weights: Weights) -> Step:
    compiled = torch.compile(partial(encode, conditional), fullgraph=True, dynamic=False)

    def step() -> Tensor:
        with torch.no_grad():  # torch.cond is not for inference tensors
            return compiled(hidden, weights)

    return step
