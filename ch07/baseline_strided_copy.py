"""Each thread copies its own run of 32 floats, as a CPU core would: the lanes of a warp touch 32 different lines."""

from torch import Tensor, empty_like

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    inputs=lambda draw, n: {"a": draw.normal(n)},
    reference=lambda a: a,
    cost=lambda n: Cost(read=4 * n, write=4 * n),
    sizes={"bench": {"n": 1 << 28}, "test": {"n": 20011}},
    tolerance=0.0,  # a copy is exact
)


def prepare(a: Tensor) -> Step:
    copy, out = load_cuda(__file__, "copy_by_runs"), empty_like(a)

    def step() -> Tensor:
        copy(a, out, a.numel())
        return out

    return step
