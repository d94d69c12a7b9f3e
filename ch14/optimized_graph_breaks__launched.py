"""The clamp is always made, inside the graph: one fused graph, no branch to ask about, no wait for an answer."""

from functools import partial

import torch
from torch import Tensor

from ch14.baseline_graph_breaks import Weights, branch_free, encode
from ch14.baseline_graph_breaks import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(hidden: Tensor, weights: Weights) -> Step:
    compiled = torch.compile(partial(encode, branch_free), fullgraph=True, dynamic=False)

    def step() -> Tensor:
        with torch.inference_mode():
            return compiled(hidden, weights)

    return step
