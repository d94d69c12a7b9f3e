"""Each launch is checked once, when the chain is captured in a graph; a replay is one launch, with one check behind."""

import torch
from torch import Tensor

from ch06.baseline_debug_sync_chain import STEPS
from ch06.baseline_debug_sync_chain import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(heat: Tensor) -> Step:
    diffuse = load_cuda(__file__, "diffuse_all")
    diffuse(heat, torch.empty_like(heat), torch.empty_like(heat), len(heat), STEPS)  # a capture may not load the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        spare, out = torch.empty_like(heat), torch.empty_like(heat)  # memory that lives as long as the graph
        diffuse(heat, spare, out, len(heat), STEPS)

    def step() -> Tensor:
        graph.replay()
        torch.cuda.current_stream().synchronize()  # raises the first error of any kernel
        return out

    return step
