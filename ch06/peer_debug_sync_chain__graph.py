"""The chain as a CUDA graph: checked when it is captured, and replayed by one launch."""

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
        return out

    return step
