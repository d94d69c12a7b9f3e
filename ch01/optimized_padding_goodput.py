"""The tokens are packed end to end, pass through the MLP, and are put back in their places: padding is only written."""

import torch
from torch import Tensor

from ch01.baseline_padding_goodput import mlp
from ch01.baseline_padding_goodput import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, lengths: Tensor, up: Tensor, down: Tensor) -> Step:
    out = torch.empty_like(x)

    def step() -> Tensor:
        counts = lengths.tolist()  # in host memory: nothing waits for the GPU
        packed = torch.cat([request[:count] for request, count in zip(x, counts)])
        done = mlp(packed, up, down)
        torch._foreach_copy_([target[:count] for target, count in zip(out, counts)], done.split(counts))
        torch._foreach_zero_([target[count:] for target, count in zip(out, counts)])
        return out

    return step
