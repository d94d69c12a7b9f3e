"""torch.compile with an activation budget of zero: keeps as little as checkpointing, recomputes in fused kernels."""

import torch
from torch import Tensor

from ch13.baseline_activation_checkpointing import block, train_step
from ch13.baseline_activation_checkpointing import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)
BUDGET = 0.0  # of what the block would keep beyond its inputs; the partitioner chooses what fits, here nothing

compiled = torch.compile(block, fullgraph=True, dynamic=False)


def prepare(
    x: Tensor, target: Tensor, qkv: list[Tensor], out: list[Tensor], up: list[Tensor], down: list[Tensor]
) -> Step:
    step = train_step(compiled, x, target, qkv, out, up, down)
    with torch._functorch.config.patch(activation_memory_budget=BUDGET):
        step()  # compiles, and no other variant must compile under this budget
    return step
