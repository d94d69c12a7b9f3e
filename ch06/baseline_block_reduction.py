"""A block adds its 256 elements up through shared memory, in eight halvings with a barrier after each."""

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
workload = Workload(
    # around a mean that is never 0 and never the same: the sum neither cancels to nothing nor looks like the last one
    inputs=lambda draw, n: {"a": draw.normal(n).add_(draw.uniform(1, low=1.0, high=2.0))},
    reference=lambda a: a.sum(),
    cost=lambda n: Cost(read=4 * n, flops=n),
    sizes={"bench": {"n": 1 << 28}, "test": {"n": 65543}},
    tolerance=1e-5,  # fp32 sums in any order; 4,000 additions of blocks one after the other may be off by 1e-6
)


def prepare(a: Tensor) -> Step:
    sum_up, out = load_cuda(__file__, "sum"), a.new_empty(())
    sums = a.new_empty(a.numel() // 128 + 2)  # of the blocks of all passes: 1/256 + 1/256**2 + ... of the elements

    def step() -> Tensor:
        sum_up(a, sums, out, a.numel())
        return out

    return step
