"""After each iteration the copy engine brings the host four bytes, and only then is the next kernel launched."""

import math

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)

SMALL = 1e-5  # change of an anomaly, in half turns, at which it is near enough
ENOUGH = 600  # iterations for float64: the error falls by 6% in each


def inputs(draw: Draw, n: int) -> Inputs:
    """Orbits, the most eccentric of which differs from draw to draw: so does the number of iterations, from 75 on."""
    most = draw.uniform(1, low=0.90, high=0.94)
    return {"mean": draw.uniform(n, high=2.0), "eccentricity": draw.uniform(n).mul_(most)}


def reference(mean: Tensor, eccentricity: Tensor) -> Tensor:
    """Kepler's equation, solved for the eccentric anomaly; angles are in half turns."""
    anomaly = mean
    for _ in range(ENOUGH):
        anomaly = mean + eccentricity / math.pi * (math.pi * anomaly).sin()
    return anomaly


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda n: Cost(read=2 * 4 * n, write=4 * n),
    sizes={"bench": {"n": 4096}, "test": {"n": 1003}},
    tolerance=1e-5,  # of stopping at small changes: 2e-7, and 7e-6 of the rms for the slowest orbit
    clock="end_to_end",
)


def prepare(mean: Tensor, eccentricity: Tensor) -> Step:
    solve, anomaly, change = load_cuda(__file__, "solve"), torch.empty_like(mean), mean.new_empty(1)

    def step() -> Tensor:
        solve(mean, eccentricity, anomaly, change, len(mean), SMALL)
        return anomaly

    return step
