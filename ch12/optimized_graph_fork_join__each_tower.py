"""The capture forks to a stream for each tower and joins them: the graph has twelve branches, which run together."""

import torch
from torch import Tensor

from ch12.baseline_graph_fork_join import tower
from ch12.baseline_graph_fork_join import workload as workload
from common.models.graphs import Replay
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(features: list[Tensor], weights: list[Tensor]) -> Step:
    widths = [x.shape[1] for x in features]
    out, zeros = features[0].new_empty(len(features[0]), sum(widths)), features[0].new_zeros(max(widths))
    graph = torch.cuda.CUDAGraph()
    # Libraries load their kernels in the first calls, which a capture would refuse. The warm-up runs on the current
    # stream, not on the side streams: cuBLAS would keep a workspace for them that does not belong to the graph.
    for _ in range(3):
        torch.cat([tower(x, own, zeros) for x, own in zip(features, weights)], dim=1, out=out)
    sides = [torch.cuda.Stream() for _ in features]

    def work() -> None:
        trunk = torch.cuda.current_stream()
        fork = trunk.record_event()
        done = []
        for side, x, own in zip(sides, features, weights):
            side.wait_event(fork)  # an event, not wait_stream: torch may deal out the capture's own stream as a side
            with torch.cuda.stream(side):
                done.append(tower(x, own, zeros))
        for side in sides:
            trunk.wait_stream(side)
        torch.cat(done, dim=1, out=out)

    with torch.cuda.graph(graph):
        work()
    replay = Replay(graph, work)

    def step() -> Tensor:
        replay()
        return out

    return step
