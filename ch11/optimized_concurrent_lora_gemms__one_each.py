"""Eight streams fork from the current one and join it again: products of several adapters fill the GPU together."""

import torch
from torch import Tensor

from ch11.baseline_concurrent_lora_gemms import workload as workload
from common.python.workload import Step

STREAMS = 8


def prepare(x: Tensor, down: list[Tensor], up: list[Tensor]) -> Step:
    gpu = torch.get_device_module(x.device)
    out, sides = torch.empty_like(x), [gpu.Stream() for _ in range(STREAMS)]

    def step() -> Tensor:
        for side in sides:
            side.wait_stream(gpu.current_stream())
        for index, (batch, a, b, target) in enumerate(zip(x, down, up, out)):
            with gpu.stream(sides[index % STREAMS]):
                torch.mm(batch @ a, b, out=target)  # what is between is allocated on the side stream, and stays there
        for side in sides:
            gpu.current_stream().wait_stream(side)
        return out

    return step
