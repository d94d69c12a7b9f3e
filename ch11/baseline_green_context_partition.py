"""A chain of small kernels has the higher priority, but a persistent kernel holds every place until it ends."""

from torch import Tensor
from torch.nn.functional import silu

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, n: int, links: int, width: int) -> Inputs:
    return {
        "x": draw.normal(n),
        "start": draw.normal(width),
        "weights": draw.normal(links, width, width, std=width**-0.5),
    }


def reference(x: Tensor, start: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    for weight in weights:
        start = weight @ start
    return silu(x), start


workload = Workload(
    inputs=inputs,
    reference=reference,
    # Nothing keeps the two apart: all bytes at the rate of memory.
    cost=lambda n, links, width: Cost(read=4 * (n + links * width**2 + width), write=4 * (n + width)),
    # 2.1 GB, some 0.5 ms, and 64 links of 1 MiB, each some 4 us of waiting
    sizes={
        "bench": {"n": 1 << 28, "links": 64, "width": 512},
        "test": {"n": 100_003, "links": 5, "width": 77},
    },
    tolerance=1e-5,
)


def side_by_side(file: str, x: Tensor, start: Tensor, weights: Tensor, *room: int) -> Step:
    """A step by the function of the .cu file beside `file`."""
    run, y, states = load_cuda(file, "both"), x.new_empty(x.shape), start.new_empty(len(weights) + 1, len(start))

    def step() -> tuple[Tensor, Tensor]:
        states[0].copy_(start)
        run(x, y, weights, states, len(x), *weights.shape[:2], *room)
        return y, states[-1]

    return step


def prepare(x: Tensor, start: Tensor, weights: Tensor) -> Step:
    return side_by_side(__file__, x, start, weights, 0)
