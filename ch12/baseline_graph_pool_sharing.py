"""One CUDA graph for each batch size, each with a memory pool of its own: the pools add up, though one graph runs."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(gpus=1)
CLASSES = 64
Captured = tuple[torch.cuda.CUDAGraph, Tensor]


def batch_sizes(largest: int, count: int) -> list[int]:
    return [largest * (index + 1) // count for index in range(count)]


def inputs(draw: Draw, largest: int, count: int, width: int, layers: int) -> Inputs:
    shapes = [(4 * width, width), (width, 4 * width)] * layers + [(CLASSES, width)]
    return {
        "batches": [draw.normal(size, width, dtype=torch.bfloat16) for size in batch_sizes(largest, count)],
        "weights": [draw.normal(*shape, std=shape[1] ** -0.5, dtype=torch.bfloat16) for shape in shapes],
    }


def classify(x: Tensor, weights: list[Tensor]) -> Tensor:
    for up, down in zip(weights[:-1:2], weights[1:-1:2]):
        x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)
    return F.linear(x, weights[-1])


def cost(largest: int, count: int, width: int, layers: int) -> Cost:
    rows, weights = sum(batch_sizes(largest, count)), 8 * layers * width**2 + CLASSES * width
    written = 2 * rows * CLASSES
    return Cost(flops=2 * rows * weights, dtype="bf16", read=2 * (weights + rows * width), write=written)


workload = Workload(
    inputs=inputs,
    reference=lambda batches, weights: tuple(classify(x, weights) for x in batches),
    cost=cost,
    sizes={
        "bench": {"largest": 2048, "count": 8, "width": 2048, "layers": 4},
        "test": {"largest": 11, "count": 3, "width": 40, "layers": 2},
    },
    tolerance=0.02,  # bf16 rounds at 0.2%, some ten times one after the other
    frozen=("weights",),
    clock="end_to_end",
    goal="memory",
    isolated=True,  # the memory that counts is then what the allocator reserves, and a graph's pool is reserved
)


def served(capture: Callable[[], list[Captured]]) -> Step:
    """A server's start and first requests: capture a graph for each batch size, then replay each of them once."""

    def step() -> tuple[Tensor, ...]:
        captured = capture()
        answers = []
        for graph, answer in captured:
            graph.replay()
            answers.append(answer.clone())
        torch.cuda.synchronize()  # the graphs end with this call, and must not run any more then
        return tuple(answers)

    return step


def warm_stream(batches: list[Tensor], weights: list[Tensor]) -> torch.cuda.Stream:
    """The stream for all captures. A pool's free blocks serve the stream again that they were made for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for x in batches:  # libraries load their kernels in the first calls, which a capture would refuse
            classify(x, weights)
    torch.cuda.current_stream().wait_stream(stream)
    return stream


def captured_graph(x: Tensor, weights: list[Tensor], stream: torch.cuda.Stream, pool: tuple[int, int]) -> Captured:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        answer = classify(x, weights)
    return graph, answer


def prepare(batches: list[Tensor], weights: list[Tensor]) -> Step:
    stream = warm_stream(batches, weights)
    return served(lambda: [captured_graph(x, weights, stream, torch.cuda.graph_pool_handle()) for x in batches])
