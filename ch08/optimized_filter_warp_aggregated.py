"""Warps count by ballots, a block adds their counts and asks the counter once for up to 4,096 numbers."""

from torch import Tensor, int32

from ch08.baseline_filter_warp_aggregated import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import AnyOrder, Step

requires = needs(sm=80)


def prepare(x: Tensor, room: int) -> Step:
    keep, out, count = load_cuda(__file__, "filter"), x.new_empty(room), x.new_empty(1, dtype=int32)

    def step() -> tuple[AnyOrder, Tensor]:
        keep(x, out, count, len(x), room)
        return AnyOrder(out), count

    return step
