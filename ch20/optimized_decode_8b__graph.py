"""The same kernels, captured once and replayed for every token: the host launches one graph instead of a thousand."""

from torch import Tensor

from ch20.baseline_decode_8b import generation
from ch20.baseline_decode_8b import workload as workload
from common.models.decoder import Shape, Weights
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1, memory_gib=44)


def prepare(weights: Weights, shape: Shape, first: Tensor, earlier: Tensor, new: int) -> Metered:
    return generation(weights, shape, first, earlier, new, repeat=replayable)
