"""The branch-free form, eager, captured by hand in a CUDA graph: as few launches as a graph has, but no fusion."""

import torch
from torch import Tensor

from ch14.baseline_graph_breaks import Weights, branch_free, encode
from ch14.baseline_graph_breaks import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(hidden: Tensor, weights: Weights) -> Step:
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        encode(branch_free, hidden, weights)  # libraries load their kernels at first use, which a capture forbids
        with torch.cuda.graph(graph):
            out = encode(branch_free, hidden, weights)

    def step() -> Tensor:
        graph.replay()
        return out

    return step
