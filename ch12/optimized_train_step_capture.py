"""The whole step, optimizer included, captured once as a CUDA graph: one launch replays what took hundreds."""

import torch
from torch import Tensor

from ch12.baseline_train_step_capture import prepare as prepare_eager
from ch12.baseline_train_step_capture import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(
    tokens: Tensor, parameters: list[Tensor], means: list[Tensor], squares: list[Tensor], updates: Tensor
) -> Step:
    eager = prepare_eager(tokens, parameters, means, squares, updates)
    state = [*parameters, *means, *squares, updates]
    before = [tensor.clone() for tensor in state]
    # Backward wants a side stream to warm up on. Made one after the other, the two are never the same: cuBLAS keeps a
    # workspace for each stream, and the graph's must be its own.
    side, capturing, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries load their kernels in the first steps, which a capture would refuse
            eager()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, stream=capturing):
        outputs = eager()
    for tensor, value in zip(state, before):  # capturing runs nothing, but the warm-up trained
        tensor.copy_(value)

    def step() -> tuple[Tensor, ...]:
        graph.replay()
        return outputs

    return step
