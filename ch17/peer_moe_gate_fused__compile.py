"""torch.compile of the chain, its count a scatter so that nothing breaks the graph; top-k and sort stay as they are."""

import torch
from torch import Tensor

from ch17.baseline_moe_gate_fused import CHOSEN
from ch17.baseline_moe_gate_fused import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def routing(logits: Tensor) -> tuple[Tensor, ...]:
    best, ids = logits.softmax(dim=1).topk(CHOSEN, dim=1)
    shares = best / best.sum(dim=1, keepdim=True)
    flat = ids.flatten()
    ends = flat.new_zeros(logits.shape[1]).scatter_add(0, flat, torch.ones_like(flat)).cumsum(0)
    return shares, ids, ends, flat.argsort(stable=True)


def prepare(logits: Tensor) -> Step:
    # No max-autotune: it would tune the few kernels that are generated, and top-k and sort, the most of it, are none.
    compiled = torch.compile(routing, fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, ...]:
        return compiled(logits)

    return step
