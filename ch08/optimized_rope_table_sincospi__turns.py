"""The angle is a 64-bit fraction of a turn: overflow drops whole turns exactly, and half turns need no slow path."""

from torch import Tensor

from ch08.baseline_rope_table_sincospi import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(frequencies: Tensor, positions: int) -> Step:
    table, out = load_cuda(__file__, "table"), frequencies.new_empty(2, positions, len(frequencies))

    def step() -> Tensor:
        table(frequencies, out, positions, len(frequencies))
        return out

    return step
