"""One pool, but the smallest graph first: no freed block is long enough for the next graph, so the pool still grows."""

import torch
from torch import Tensor

from ch12.baseline_graph_pool_sharing import Captured, captured_graph, served, warm_stream
from ch12.baseline_graph_pool_sharing import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(batches: list[Tensor], weights: list[Tensor]) -> Step:
    stream = warm_stream(batches, weights)

    def capture() -> list[Captured]:
        pool = torch.cuda.graph_pool_handle()
        return [captured_graph(x, weights, stream, pool) for x in batches]

    return served(capture)
