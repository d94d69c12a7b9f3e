"""One block walks a plane twice: its 1 MiB is in no cache when it comes back, so memory is read twice."""

from torch import Tensor, empty_like
from torch.nn.functional import instance_norm

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Step, Workload

requires = needs(sm=80)


def planes(draw: Draw, images: int, channels: int, side: int) -> Tensor:
    """Feature maps whose means are apart, so that an answer without the right mean is wrong."""
    return draw.normal(images, channels, side, side).add_(draw.normal(images, channels, 1, 1), alpha=3.0)


workload = Workload(
    inputs=lambda draw, images, channels, side: {"x": planes(draw, images, channels, side)},
    reference=lambda x: instance_norm(x, eps=1e-5),
    cost=lambda images, channels, side: Cost(
        read=4 * images * channels * side * side, write=4 * images * channels * side * side
    ),
    # A plane of 512 x 512 floats is what fits on eight multiprocessors, in registers and shared memory.
    sizes={"bench": {"images": 16, "channels": 64, "side": 512}, "test": {"images": 2, "channels": 3, "side": 301}},
    tolerance=5e-6,  # mean and variance are sums of 262144 numbers in fp32
)


def prepare(x: Tensor) -> Step:
    normalize, out = load_cuda(__file__, "normalize"), empty_like(x)
    (images, channels), pixels = x.shape[:2], x.shape[2] * x.shape[3]

    def step() -> Tensor:
        normalize(x, out, images * channels, pixels)
        return out

    return step
