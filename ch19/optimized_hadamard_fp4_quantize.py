"""A warp rotates its blocks by tensor cores, and integer operations on the bits of the sums round them to FP4."""

from torch import Tensor

from ch19.baseline_hadamard_fp4_quantize import BLOCK, metered
from ch19.baseline_hadamard_fp4_quantize import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80)


def prepare(x: Tensor, rotation: Tensor, noise: Tensor) -> Metered:
    quantize = load_cuda(__file__, "quantize_fp4")
    rows, blocks = len(x), x.numel() // BLOCK
    codes, scales = (noise.new_empty(rows, part // rows) for part in (x.numel() // 2, blocks))

    def step() -> tuple[Tensor, Tensor]:
        quantize(x, rotation, noise, codes, scales, blocks)
        return codes, scales

    return metered(step, x, rotation, noise)
