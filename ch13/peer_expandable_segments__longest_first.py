"""The allocator as it is, and the longest batch first: what it leaves is cut into pieces for all the shorter ones."""

import torch
from torch import Tensor

from ch13.baseline_expandable_segments import losses, metered
from ch13.baseline_expandable_segments import workload as workload
from common.python.workload import Metered


def prepare(texts: list[Tensor], weights: list[Tensor]) -> Metered:
    leaves = [weight.detach().requires_grad_() for weight in weights]

    def step() -> tuple[Tensor, ...]:
        for leaf in leaves:
            leaf.grad = None
        return torch.stack(losses(reversed(texts), leaves)[::-1]), *(leaf.grad for leaf in leaves)

    return metered(step, leaves)
