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
    diffuse, spare, out = load_cuda(__file__, "diffuse_all"), torch.empty_like(heat), torch.empty_like(heat)
    diffuse(heat, spare, out, len(heat), STEPS)  # the first launch loads the kernel, which a capture would refuse
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        diffuse(heat, spare, out, len(heat), STEPS)

    def step() -> Tensor:
        graph.replay()
        return out

    return step
