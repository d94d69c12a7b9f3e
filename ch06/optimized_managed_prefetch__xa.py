"""Pages stay in host memory, and 132 blocks of 4 pieces a thread update them."""

from torch import Tensor

from ch06.baseline_managed_prefetch import managed
from ch06.baseline_managed_prefetch import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(values: Tensor) -> Step:
    keep_at_home, decay = (load_cuda(__file__, name) for name in ("keep_at_home", "decay_in_place"))
    values.set_(managed(values))
    keep_at_home(values.data_ptr(), values.nbytes)

    def step() -> Tensor:
        decay(values.data_ptr(), values.numel())
        return values

    return step
