"""Matrices of one shape are stacked, and each of the fifteen products is one launch for all of them."""

import torch
from torch import Tensor

from ch20.baseline_muon_step import COEFFICIENTS, DECAY, MOMENTUM, RATE, ROUNDS, rate
from ch20.baseline_muon_step import workload as workload
from common.python.workload import Step


def prepare(weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> Step:
    first, second, third = COEFFICIENTS
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, weight in enumerate(weights):
        alike.setdefault(tuple(weight.shape), []).append(index)

    def orthogonal(x: Tensor) -> Tensor:
        x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
        for _ in range(ROUNDS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=second, alpha=third), x, beta=first)
        return x

    def step() -> tuple[Tensor, ...]:
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        torch._foreach_mul_(weights, 1 - RATE * DECAY)
        for shape, indices in alike.items():
            stack = torch.stack([updates[index] for index in indices])
            stack = orthogonal(stack.mT).mT if shape[0] > shape[1] else orthogonal(stack)
            torch._foreach_sub_([weights[index] for index in indices], list(stack.unbind()), alpha=rate(shape))
        return *weights, *momenta

    return step
