"""The copy engine is given the stride, and reads 8 KiB of each row where they lie: a quarter crosses PCIe."""

from torch import Tensor

from ch11.baseline_strided_shard_copy import SHARDS
from ch11.baseline_strided_shard_copy import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(weights: Tensor, shard: Tensor, held: Tensor) -> Step:
    fetch, pinned, (rows, width) = load_cuda(__file__, "fetch"), weights.pin_memory(), held.shape

    def step() -> Tensor:
        fetch(pinned, held, rows, SHARDS * width, int(shard) * width, width)
        return held

    return step
