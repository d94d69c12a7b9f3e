"""synchronize() of an ordinary event: the driver spins inside, unless it counts more contexts than cores."""

import torch
from torch import Tensor

from ch03.baseline_sync_policy import behind_event, searched
from ch03.baseline_sync_policy import workload as workload
from common.python.workload import Metered


def prepare(x: Tensor, ranks: Tensor) -> Metered:
    event = torch.get_device_module(x.device).Event()
    return searched(x, ranks, behind_event(x, event, lambda event: event.synchronize()))
