"""The CPU waits after each layer to read how long it took: the queue runs empty, and the GPU waits for a launch."""

from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

requires = needs(gpus=1)


def inputs(draw: Draw, tokens: int, width: int, layers: int) -> Inputs:
    def weights(rows: int, columns: int) -> list[Tensor]:
        return [draw.normal(rows, columns, std=columns**-0.5, dtype=torch.bfloat16) for _ in range(layers)]

    return {
        "x": draw.normal(tokens, width, dtype=torch.bfloat16),
        "ups": weights(4 * width, width),
        "downs": weights(width, 4 * width),
    }


def layer(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The MLP of a transformer block: five kernels."""
    return x + linear(gelu(linear(layer_norm(x, x.shape[-1:]), up)), down)


def network(x: Tensor, ups: list[Tensor], downs: list[Tensor]) -> Tensor:
    for up, down in zip(ups, downs):
        x = layer(x, up, down)
    return x


workload = Workload(
    inputs=inputs,
    reference=network,
    cost=lambda tokens, width, layers: Cost(
        read=2 * (8 * layers * width**2 + tokens * width),
        write=2 * tokens * width,
        flops=16 * tokens * layers * width**2,
        dtype="bf16",
    ),
    # A layer takes the GPU about 80 us and the CPU about 30 us to launch: without timers the CPU is always ahead.
    sizes={
        "bench": {"tokens": 2048, "width": 1024, "layers": 32},
        "test": {"tokens": 13, "width": 40, "layers": 3},
    },
    tolerance=0.03,  # bf16 rounds each layer's sum, norm and activations at 0.2%, 32 times over
    clock="end_to_end",
)


def told(times: list[float]) -> dict[str, float]:
    """Metrics of the layers' times, which are in milliseconds."""
    shown = {"shortest": min(times), "median": median(times), "longest": max(times), "mean": sum(times) / len(times)}
    return {f"{name} layer us": 1e3 * ms for name, ms in shown.items()}


def prepare(x: Tensor, ups: list[Tensor], downs: list[Tensor]) -> Metered:
    marks, times = [torch.cuda.Event(enable_timing=True) for _ in range(2)], list[float]()

    def step() -> Tensor:
        times.clear()
        hidden = x
        for up, down in zip(ups, downs):
            marks[0].record()
            hidden = layer(hidden, up, down)
            marks[1].record()
            marks[1].synchronize()
            times.append(marks[0].elapsed_time(marks[1]))
        return hidden

    return Metered(step, lambda: told(times))
