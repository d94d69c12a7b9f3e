"""torch's own: `pin_memory` copies all of it with every core, and only then does the copy engine begin."""

from torch import Tensor

from ch03.baseline_staging_threads import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(host: Tensor, device: Tensor) -> Step:
    def step() -> Tensor:
        return device.copy_(host.pin_memory(), non_blocking=True)  # torch keeps the page-locked memory for the next

    return step
