"""An fp32 master takes small updates, and a bf16 copy of it does the work: six bytes for each weight."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE = 257 * 2.0**-17  # 2.0e-3; a bf16 number from 1 to 2 would need a step of 3.9e-3 to move at all


def inputs(draw: Draw, numbers: int, updates: int) -> Inputs:
    """Weights such as a norm's, and gradients that agree: each update is too small for bf16, their sum is not.

    Updates are multiples of 2**-22, so that fp32 sums are exact; with a weight's last bit set, none is a tie in bf16.
    """
    start = draw.uniform(numbers, low=1.0, high=2.0)
    start.view(torch.int32).bitwise_or_(1)
    return {
        "start": start,
        "gradients": draw.uniform(updates, numbers, low=0.5, high=1.5, dtype=torch.bfloat16).mul_(32).round_().div_(32),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda start, gradients: (start - RATE * gradients.sum(0)).to(torch.bfloat16),
    # all gradients are there at once, so one walk could make all updates
    cost=lambda numbers, updates: Cost(read=(4 + 2 * updates) * numbers, write=2 * numbers, items=numbers * updates),
    sizes={
        "bench": {"numbers": 1 << 26, "updates": 8},
        "cpu": {"numbers": 1 << 20, "updates": 8},
        "test": {"numbers": 9001, "updates": 9},
    },
    tolerance=0.0,  # exact sums; a master without its last two bits would round some weights to other numbers
    goal="memory",
)


def prepare(start: Tensor, gradients: Tensor) -> Step:
    master, working = torch.empty_like(start), torch.empty_like(start, dtype=torch.bfloat16)

    def step() -> Tensor:
        source = start
        for gradient in gradients:
            torch.add(source, gradient, alpha=-RATE, out=master)
            working.copy_(master)
            source = master
        return working

    return step
