"""Tiles of a sixth of the size leave room for four blocks: while one copies its tile, others compute."""

from torch import Tensor

from ch08.baseline_depthwise_tile_occupancy import convolving
from ch08.baseline_depthwise_tile_occupancy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(x: Tensor, filters: Tensor) -> Step:
    return convolving("convolve_small", x, filters)
