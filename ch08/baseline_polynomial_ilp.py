"""Horner's rule: each multiply-add waits for the one before, and a scheduler has one warp, so it issues one in four."""

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Step, Workload

requires = needs(sm=80)


def near_one(draw: Draw, points: int, count: int) -> Tensor:
    """Points of both signs, so near to 1 that the highest of `count` powers is at least exp(-4): each one counts."""
    signs = draw.integers(points, high=2).mul_(2).sub_(1)
    return draw.uniform(points).mul_(-4.0 / count).add_(1.0).mul_(signs)


def reference(coefficients: Tensor, x: Tensor) -> Tensor:
    value = x.new_zeros(len(x))
    width = 256  # terms at a time: their powers are a matrix
    powers = x[:, None] ** x.new_tensor(range(width))
    for first in reversed(range(0, len(coefficients), width)):
        terms = coefficients[first : first + width]
        value = value * x**width + powers[:, : len(terms)] @ terms
    return value


workload = Workload(
    inputs=lambda draw, points, count: {
        "coefficients": draw.normal(count),
        "x": near_one(draw, points, count),
    },
    reference=reference,
    # A multiply-add for each point and coefficient, on the fp32 lanes: they are the subject, not matrix products.
    cost=lambda points, count: Cost(flops=2 * points * count, read=4 * (points + count), write=4 * points),
    # On an H200 this is a warp for each of its 528 schedulers.
    sizes={"bench": {"points": 16896, "count": 131072}, "test": {"points": 389, "count": 9001}},
    tolerance=3e-5,  # a rounding for each of 131072 terms
    rungs="two four eight",
)


def prepare(coefficients: Tensor, x: Tensor) -> Step:
    evaluate, out = load_cuda(__file__, "evaluate"), x.new_empty(len(x))

    def step() -> Tensor:
        evaluate(coefficients, x, out, len(coefficients), len(x))
        return out

    return step
