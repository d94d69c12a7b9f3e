"""One block of the update for each multiprocessor, on a stream that goes first, beside a tile of the product."""

import torch
from torch import Tensor

from ch11.baseline_gemm_memory_overlap import descend, multiply
from ch11.baseline_gemm_memory_overlap import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weight: Tensor, values: Tensor, momentum: Tensor, gradient: Tensor) -> Step:
    gpu, out = torch.get_device_module(x.device), x.new_empty(len(x), weight.shape[1])
    programs = gpu.get_device_properties(x.device).multi_processor_count if x.is_cuda else 3
    side = gpu.Stream(priority=-1)  # or its blocks would queue behind the last of the product's

    def step() -> tuple[Tensor, ...]:
        side.wait_stream(gpu.current_stream())
        multiply(x, weight, out)  # first: its tiles make a multiprocessor set shared memory aside, the update's do not
        with gpu.stream(side):
            descend(values, momentum, gradient, programs)
        gpu.current_stream().wait_stream(side)
        return out, values, momentum

    return step
