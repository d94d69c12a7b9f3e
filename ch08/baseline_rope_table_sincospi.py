"""Angles of up to a million radians: beyond 105,615 sine and cosine take a slow path, and a warp waits for it."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, positions: int, half: int) -> Inputs:
    """Frequencies as of Llama 3, from 1 down, whose base is 500,000, give or take a fifth."""
    base, steps = draw.uniform(1, low=4e5, high=6e5), torch.arange(half, device=draw.device) / half
    return {"frequencies": base**-steps, "positions": positions}


def reference(frequencies: Tensor, positions: int) -> Tensor:
    """Cosines and sines (2, positions, half) of each position times each frequency."""
    angles = torch.arange(positions, device=frequencies.device)[:, None] * frequencies
    return torch.stack([angles.cos(), angles.sin()])


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda positions, half: Cost(read=4 * half, write=8 * positions * half, items=positions, unit="positions"),
    sizes={"bench": {"positions": 1 << 20, "half": 64}, "test": {"positions": 1003, "half": 37}},
    tolerance=5e-3,  # of a product in fp32: a million radians have a last digit of 1/16
)


def prepare(frequencies: Tensor, positions: int) -> Step:
    table, out = load_cuda(__file__, "table"), frequencies.new_empty(2, positions, len(frequencies))

    def step() -> Tensor:
        table(frequencies, out, positions, len(frequencies))
        return out

    return step
