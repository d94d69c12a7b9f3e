"""The longest answers are admitted first, so that short ones fill what they leave, and no long one ends alone."""

from torch import Tensor

from ch20.baseline_serve_trace import serving
from ch20.baseline_serve_trace import workload as workload
from common.models.decoder import Shape, Weights
from common.python.workload import Metered


def prepare(weights: Weights, shape: Shape, prompts: Tensor, wanted: Tensor, room: int) -> Metered:
    return serving(weights, shape, prompts, wanted, room, page=8, rows=128, admit="longest", graph=True)
