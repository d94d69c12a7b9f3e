"""Workers with the lowest priority: they may run anywhere, but hardly ever in place of the thread that launches."""

import os

from torch import Tensor

from ch03.baseline_launch_core_affinity import launched
from ch03.baseline_launch_core_affinity import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(cores=4)


def prepare(deltas: Tensor) -> Step:
    return launched(deltas, set_up=lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))
