"""The thousand launches are captured once as a CUDA graph: the same kernels, and one launch a solve."""

import torch
from torch import Tensor

from ch12.baseline_cg_solver_graph import prepare as prepare_eager
from ch12.baseline_cg_solver_graph import workload as workload
from common.python.requirements import needs
from common.python.workload import Output, Step

requires = needs(sm=80)


def prepare(b: Tensor) -> Step:
    eager, graph = prepare_eager(b), torch.cuda.CUDAGraph()
    eager()  # the first launch of a kernel loads its code, which a capture would refuse
    with torch.cuda.graph(graph):
        x = eager()

    def step() -> Output:
        graph.replay()
        return x

    return step
