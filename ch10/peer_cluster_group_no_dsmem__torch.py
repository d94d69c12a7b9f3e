"""torch's instance_norm, which is its batch norm of one image."""

from torch import Tensor
from torch.nn.functional import instance_norm

from ch10.baseline_cluster_group_no_dsmem import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return instance_norm(x, eps=1e-5)

    return step
