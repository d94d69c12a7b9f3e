"""AdamW's two moments stay on the GPU, eight bytes for a parameter of four, though only updates look at them."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE, DECAY, BETA1, BETA2, EPSILON = 0.05, 0.1, 0.9, 0.999, 1e-8  # a rate at which three updates show


def inputs(draw: Draw, layers: int, numbers: int, updates: int) -> Inputs:
    return {"parameters": draw.normal(layers, numbers), "gradients": draw.normal(updates, layers, numbers, std=1e-3)}


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
    cost=lambda layers, numbers, updates: Cost(
        read=4 * layers * numbers * (1 + updates), write=4 * layers * numbers, items=layers * numbers * updates
    ),
    # 34 M parameters, 134 MB; their moments are 268 MB, a layer's 17
    sizes={
        "bench": {"layers": 16, "numbers": 1 << 21, "updates": 3},
        "test": {"layers": 5, "numbers": 1009, "updates": 3},
    },
    tolerance=1e-5,  # fp32 rounds at 6e-8, a few times an update
    mutates=("parameters",),
    clock="end_to_end",
    goal="memory",
)


def adamw(parameters: Tensor, gradient: Tensor, state: Tensor, count: Tensor) -> None:
    """The fused kernel, in place; `state` is both moments."""
    hyper = {"lr": RATE, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": EPSILON}
    mean, square = state
    torch._fused_adamw_([parameters], [gradient], [mean], [square], [], [count], amsgrad=False, maximize=False, **hyper)


def prepare(parameters: Tensor, gradients: Tensor) -> Step:
    states, count = parameters.new_empty(len(parameters), 2, parameters.shape[1]), parameters.new_empty(())

    def step() -> Tensor:
        states.zero_()
        for update, gradient in enumerate(gradients, 1):
            count.fill_(update)
            for layer in zip(parameters, gradient, states):
                adamw(*layer, count)
        return parameters

    return step
