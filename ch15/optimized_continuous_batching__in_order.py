"""Slots are refilled four at a time, while other requests go on: one prefill reads the weights for four prompts."""

from torch import Tensor

from ch15.baseline_continuous_batching import serving
from ch15.baseline_continuous_batching import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Metered

CHUNK = 4


def prepare(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> Metered:
    return serving(weights, shape, prompt, wanted, slots, admits=lambda idle: idle >= min(CHUNK, slots))
