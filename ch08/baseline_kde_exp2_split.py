"""All exponentials go to the special-function unit, an eighth as wide as the multiply-add pipe beside it."""

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, n: int, count: int) -> Inputs:
    points, centers = (draw.uniform(size, 2, low=-4.0, high=4.0) for size in (n, count))
    return {"points": points, "centers": centers, "weights": draw.uniform(count, low=0.5, high=1.5)}


def reference(points: Tensor, centers: Tensor, weights: Tensor) -> Tensor:
    """The sum of weighted Gaussians of unit width around the centers, at each point."""
    total = points.new_zeros(len(points))
    for center, weight in zip(centers, weights):
        total += (-0.5 * (points - center).square_().sum(1)).exp_().mul_(weight)
    return total


workload = Workload(
    inputs=inputs,
    reference=reference,
    # Exponentials are the subject, by whichever unit. No count of them is the least: a table of the plane needs none.
    cost=lambda n, count: Cost(
        flops=n * count, dtype="exp2", read=8 * n + 12 * count, write=4 * n, items=n, unit="points"
    ),
    sizes={"bench": {"n": 1 << 25, "count": 32}, "test": {"n": 70003, "count": 37}},
    tolerance=1e-4,  # a polynomial of degree 3 is off by 7.5e-5 at most
)


def prepare(points: Tensor, centers: Tensor, weights: Tensor) -> Step:
    density, out = load_cuda(__file__, "density"), points.new_empty(len(points))

    def step() -> Tensor:
        density(points, centers, weights, out, len(points), len(weights))
        return out

    return step
