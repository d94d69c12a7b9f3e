"""A layer is moved, quantized, and its bf16 weight freed before the next one comes: one at a time is on the GPU."""

from torch import Tensor

from ch13.baseline_quantize_on_load import answer, quantized
from ch13.baseline_quantize_on_load import workload as workload
from common.python.workload import Step


def prepare(weights: list[Tensor], x: Tensor) -> Step:
    def step() -> tuple[Tensor, ...]:
        return answer(x, [quantized(weight.to(x.device, copy=True)) for weight in weights])

    return step
