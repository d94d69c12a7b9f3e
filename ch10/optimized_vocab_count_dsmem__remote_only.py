"""Four blocks of a cluster share a table of counters: three additions of four go to another block's shared memory."""

from torch import Tensor

from ch10.baseline_vocab_count_dsmem import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a", "sm_100a", "sm_103a"])


def prepare(ids: Tensor, vocabulary: int) -> Step:
    count, counts = load_cuda(__file__, "count_ids"), ids.new_empty(vocabulary)

    def step() -> Tensor:
        count(ids, counts, ids.numel(), counts.numel())
        return counts

    return step
