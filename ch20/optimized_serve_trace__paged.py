"""A request gets as many pages of eight tokens as it will fill, so the same memory serves twice as many at once."""

from torch import Tensor

from ch20.baseline_serve_trace import serving
from ch20.baseline_serve_trace import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Metered


def prepare(weights: Weights, shape: Shape, prompts: Tensor, wanted: Tensor, room: int) -> Metered:
    return serving(weights, shape, prompts, wanted, room, page=8)
