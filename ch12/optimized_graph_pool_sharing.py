"""All graphs are captured into one memory pool, the largest first: the others find its freed blocks long enough."""

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
        # The graphs may overwrite each other's intermediates, because only one runs at a time. Their answers are kept
        # in this list, so each has its own block.
        largest_first = [captured_graph(x, weights, stream, pool) for x in reversed(batches)]
        return largest_first[::-1]

    return served(capture)
