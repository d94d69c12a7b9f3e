"""torch.cuda.make_graphed_callables captures several callables at once; it gives them one pool by itself."""

import gc

import torch
from torch import Tensor

from ch12.baseline_graph_pool_sharing import classify, warm_stream
from ch12.baseline_graph_pool_sharing import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(batches: list[Tensor], weights: list[Tensor]) -> Step:
    warm_stream(batches, weights)
    largest_first = batches[::-1]

    def step() -> tuple[Tensor, ...]:
        graphed = torch.cuda.make_graphed_callables(
            tuple(lambda x: classify(x, weights) for _ in largest_first),
            tuple((x,) for x in largest_first),
            num_warmup_iters=1,
        )
        answers = tuple(call(x).clone() for call, x in zip(graphed, largest_first))[::-1]
        torch.cuda.synchronize()  # the graphs end with this call, and must not run any more then
        del graphed
        gc.collect()  # its classes refer to themselves: without this, the graphs and their pool would stay
        return answers

    return step
