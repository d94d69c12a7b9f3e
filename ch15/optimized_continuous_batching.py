"""Ended requests' slots take the next ones while others go on, four at a time: a prefill reads weights for several."""

from torch import Tensor

from ch15.baseline_continuous_batching import serving
from ch15.baseline_continuous_batching import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Metered

CHUNK = 4


def prepare(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> Metered:
    return serving(weights, shape, prompt, wanted, slots, admits=lambda idle: idle >= min(CHUNK, slots))
