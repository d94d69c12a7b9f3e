"""torch.compile in max-autotune mode: it may pad the product's operands by itself, and tries kernels of its own."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from ch01.baseline_vocab_padding import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def logits(hidden: Tensor, head: Tensor) -> Tensor:
    return linear(hidden, head)


def prepare(hidden: Tensor, head: Tensor) -> Step:
    compiled = torch.compile(logits, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(hidden, head)

    return step
