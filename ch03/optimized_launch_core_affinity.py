"""The launching thread has a core to itself, which the workers' masks leave out: it never waits for its turn."""

import os

from torch import Tensor

from ch03.baseline_launch_core_affinity import launched
from ch03.baseline_launch_core_affinity import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(cores=4)
CORES = os.sched_getaffinity(0)  # at import, before this process is bound
MINE = max(CORES)  # the first cores serve most interrupts


def prepare(deltas: Tensor) -> Step:
    step = launched(deltas, set_up=lambda: os.sched_setaffinity(0, CORES - {MINE}))
    os.sched_setaffinity(0, {MINE})
    return step
