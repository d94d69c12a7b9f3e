"""A slot whose request has ended takes the next one before the next step: no slot waits, but prefills are small."""

from torch import Tensor

from ch15.baseline_continuous_batching import serving
from ch15.baseline_continuous_batching import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Metered


def prepare(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> Metered:
    return serving(weights, shape, prompt, wanted, slots, admits=lambda idle: True)
