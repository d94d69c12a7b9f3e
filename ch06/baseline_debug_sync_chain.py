"""A check behind each of sixty launches waits for the GPU, so its queue runs empty sixty times."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)

STEPS = 60  # kernels, each of which needs all of the one before it


def reference(heat: Tensor) -> Tensor:
    """Explicit time steps of the heat equation on a ring."""
    for _ in range(STEPS):
        heat = heat + 0.25 * (heat.roll(1) - 2.0 * heat + heat.roll(-1))
    return heat


workload = Workload(
    inputs=lambda draw, n: {"heat": draw.normal(n)},
    reference=reference,
    cost=lambda n: Cost(read=4 * n, write=4 * n),
    sizes={"bench": {"n": 1 << 16}, "test": {"n": 1003}},
    tolerance=2e-6,  # sixty roundings to fp32 are off by 1e-7
    clock="end_to_end",
)


def prepare(heat: Tensor) -> Step:
    diffuse, spare, out = load_cuda(__file__, "diffuse_all"), torch.empty_like(heat), torch.empty_like(heat)

    def step() -> Tensor:
        diffuse(heat, spare, out, len(heat), STEPS)
        return out

    return step
