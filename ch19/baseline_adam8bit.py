"""AdamW's fused kernel with both moments in fp32: eight bytes of state stay in memory for a parameter of four."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

# The rate is large, so that four updates show beside parameters of unit size.
RATE, DECAY, BETA1, BETA2, EPSILON = 0.05, 0.1, 0.9, 0.999, 1e-8


def inputs(draw: Draw, numbers: int, updates: int) -> Inputs:
    return {"parameters": draw.normal(numbers), "gradients": draw.normal(updates, numbers, std=1e-3)}


def reference(parameters: Tensor, gradients: Tensor) -> Tensor:
    m, v = torch.zeros_like(parameters), torch.zeros_like(parameters)
    for update, g in enumerate(gradients, 1):
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g.square()
        slope = m / (1 - BETA1**update) / ((v / (1 - BETA2**update)).sqrt() + EPSILON)
        parameters = parameters - RATE * (DECAY * parameters + slope)
    return parameters


workload = Workload(
    inputs=inputs,
    reference=reference,
    # all gradients are there at once, so one walk could make all updates, with moments in registers
    cost=lambda numbers, updates: Cost(read=4 * numbers * (1 + updates), write=4 * numbers, items=numbers * updates),
    # 67 M parameters, 268 MB; a training loop would have one gradient in memory, here it is all four
    sizes={
        "bench": {"numbers": 1 << 26, "updates": 4},
        "cpu": {"numbers": 1 << 20, "updates": 4},
        "test": {"numbers": 9001, "updates": 5},
    },
    tolerance=1e-2,  # eight bits keep a moment to within 4.4%, and an update is a twentieth of a parameter
    mutates=("parameters",),
    goal="memory",
)


def prepare(parameters: Tensor, gradients: Tensor) -> Step:
    mean, square = torch.zeros_like(parameters), torch.zeros_like(parameters)
    count = parameters.new_empty(())  # the kernel reads it from the device
    hyper = {"lr": RATE, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": EPSILON}

    def step() -> Tensor:
        torch._foreach_zero_([mean, square])
        for update, gradient in enumerate(gradients, 1):
            count.fill_(update)
            state = [parameters], [gradient], [mean], [square], [], [count]
            torch._fused_adamw_(*state, amsgrad=False, maximize=False, **hyper)
        return parameters

    return step
