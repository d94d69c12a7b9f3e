"""One step of a loop, replayed: as a CUDA graph on a GPU, and as it is on a CPU, where nothing is launched."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Replay:
    """A captured step. The graph holds addresses only, so `work` is kept, and with it every tensor that it uses."""

    graph: torch.cuda.CUDAGraph
    work: Callable[[], None]

    def __call__(self) -> None:
        self.graph.replay()


def replayable(
    work: Callable[[], None], device: torch.device, pool: Any = None, stream: torch.cuda.Stream | None = None
) -> Callable[[], None]:
    """`work` captured. It must read and write the same tensors each time, and is called three times to warm up.

    It warms up on the current stream. Of the 32 streams that torch deals out in turn, a new one can be the capture's:
    cuBLAS would find there the workspace of the warm-up, which is not the graph's own and may be given to others.
    Graphs that never run at once may share a `pool` of memory, if no result stays in it. Graphs that run at once need
    different `stream`s of capture: all graphs of a stream share its workspace.
    """
    if device.type != "cuda":
        return work
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        for _ in range(3):  # libraries load their kernels in the first calls, which a capture would refuse
            work()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            work()
    return Replay(graph, work)


def captured_training(
    work: Callable[[], None], device: torch.device, warm_up: Callable[[], object]
) -> Callable[[], None]:
    """`work` captured, backward included. `warm_up`, which calls it, runs three times before: autograd's first calls
    want a side stream.
    """
    if device.type != "cuda":
        return work
    side, capturing, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            warm_up()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, stream=capturing):
        work()
    return Replay(graph, work)
