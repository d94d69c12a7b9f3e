"""A grid of 64 blocks, copied from a smaller GPU: half of an H200's multiprocessors get none, the others only one."""

from torch import Tensor, empty_like

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n), "b": draw.normal(n)},
    reference=lambda a, b: a + b,
    cost=lambda n: Cost(read=8 * n, write=4 * n, flops=n),
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 20011}},
    tolerance=1e-6,  # one rounding to fp32 is off by 3e-8
)


def prepare(a: Tensor, b: Tensor) -> Step:
    add, out = load_cuda(__file__, "add_64_blocks"), empty_like(a)

    def step() -> Tensor:
        add(a, b, out, a.numel())
        return out

    return step
