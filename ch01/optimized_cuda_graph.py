"""The sixty launches are recorded once; a step is one launch of the recording, the GPU starts each kernel itself."""

import torch
from torch import Tensor

from ch01.baseline_cuda_graph import network
from ch01.baseline_cuda_graph import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Step:
    warm_up = torch.cuda.Stream()  # libraries allocate at first use, which a capture forbids
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):
        network(x, weights, biases)
    torch.cuda.current_stream().wait_stream(warm_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = network(x, weights, biases)  # recorded, not run: every replay reads `x` and writes `out` where they lie

    def step() -> Tensor:
        graph.replay()
        return out

    return step
