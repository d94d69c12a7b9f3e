"""A fixed network of exchanges between constant places: 25 values stay in registers, and no lane takes a branch."""

from torch import Tensor, empty_like

from ch08.baseline_median_filter_registers import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(image: Tensor) -> Step:
    median_filter, out = load_cuda(__file__, "median_filter"), empty_like(image)

    def step() -> Tensor:
        median_filter(image, out, *image.shape)
        return out

    return step
