"""The host reads whether the scaled gradients are finite, and only then launches the update: the GPU waits for it."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 0.1, 0.9, 0.999, 1e-8
SCALE = 2.0**12


def inputs(draw: Draw, count: int, overflows: int, n: int) -> Inputs:
    """Gradients of `count` steps, of which `overflows` at random are not finite; each is of the loss scaled as then."""
    bad = draw.permutation(count) < overflows
    scales = SCALE * 0.5 ** (bad.cumsum(0) - bad.long())
    gradients = draw.normal(count, n).mul_(scales[:, None])
    where = draw.integers(count, 1, high=n)
    gradients.scatter_(1, where, torch.where(bad[:, None], torch.inf, gradients.gather(1, where)))
    return {
        "gradients": gradients,
        "parameters": draw.normal(n),
        "means": draw.normal(n),
        "squares": draw.uniform(n, low=0.5, high=2.0),
        "scale": gradients.new_full((1,), SCALE),
        "updates": draw.integers(1, low=1, high=20).float(),  # made so far
    }


def reference(
    gradients: Tensor, parameters: Tensor, means: Tensor, squares: Tensor, scale: Tensor, updates: Tensor
) -> tuple[Tensor, ...]:
    for scaled in gradients:
        if not bool(scaled.isfinite().all()):
            scale = (scale / 2).clamp(min=1)
            continue
        updates, gradient = updates + 1, scaled / scale
        means = BETA1 * means + (1 - BETA1) * gradient
        squares = BETA2 * squares + (1 - BETA2) * gradient.square()
        change = means / (1 - BETA1**updates) / ((squares / (1 - BETA2**updates)).sqrt() + EPSILON)
        parameters = parameters * (1 - RATE * DECAY) - RATE * change
    return parameters, means, squares, scale, updates


workload = Workload(
    inputs=inputs,
    reference=reference,
    # All gradients are read once; parameters and both moments once in and out, as if they then stayed on chip.
    cost=lambda count, overflows, n: Cost(read=4 * n * (count + 3), write=4 * n * 3),
    sizes={
        "bench": {"count": 8, "overflows": 4, "n": 1 << 20},
        "test": {"count": 3, "overflows": 1, "n": 1001},
    },
    tolerance=1e-5,
    mutates=("parameters", "means", "squares", "scale", "updates"),
    clock="end_to_end",
)


def prepare(
    gradients: Tensor, parameters: Tensor, means: Tensor, squares: Tensor, scale: Tensor, updates: Tensor
) -> Step:
    train = load_cuda(__file__, "train")
    found, verdict = (scale.new_empty(1, dtype=torch.int32) for _ in range(2))
    seen = torch.empty(1, dtype=torch.int32, pin_memory=True)
    state = parameters, means, squares, scale, updates

    def step() -> tuple[Tensor, ...]:
        train(gradients, *state, found, verdict, seen, *gradients.shape)
        return state

    return step
