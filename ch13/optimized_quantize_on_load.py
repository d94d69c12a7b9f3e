"""A layer is moved, quantized, and its bf16 weight freed before the next one comes: one at a time is on the GPU."""

from torch import Tensor

from ch13.baseline_quantize_on_load import answer, metered, quantized
from ch13.baseline_quantize_on_load import workload as workload
from common.python.workload import Metered


def prepare(weights: list[Tensor], x: Tensor) -> Metered:
    def step() -> tuple[Tensor, ...]:
        return answer(x, [quantized(weight.to(x.device, copy=True)) for weight in weights])

    return metered(step, weights)
