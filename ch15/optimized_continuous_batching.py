"""The longest answers are served first, so that none is left to decode alone; slots are refilled four at a time."""

from torch import Tensor

from ch15.baseline_continuous_batching import serving
from ch15.baseline_continuous_batching import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Metered

CHUNK = 4


def prepare(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> Metered:
    return serving(weights, shape, prompt, wanted, slots, lambda idle: idle >= min(CHUNK, slots), longest_first=True)
