"""torch.compile of the baseline: norms and rotations are fused, and the cache is written by kernels of their own."""

import torch
from torch import Tensor

from ch18.baseline_qknorm_rope_cache import turned
from ch18.baseline_qknorm_rope_cache import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(q: Tensor, k: Tensor, v: Tensor, gains: Tensor, turns: Tensor, slots: Tensor) -> Step:
    keys, values = torch.empty_like(k), torch.empty_like(v)

    @torch.compile(dynamic=False, fullgraph=True)
    def compiled() -> Tensor:
        keys.index_copy_(0, slots, turned(k, gains[1], turns))
        values.index_copy_(0, slots, v)
        return turned(q, gains[0], turns)

    def step() -> tuple[Tensor, ...]:
        return compiled(), keys, values

    return step
