"""A tile is read once, cast and turned in registers, and stored in whole lines both ways; a block adds one maximum."""

import torch
from torch import Tensor

from ch19.baseline_fp8_cast_transpose import metered
from ch19.baseline_fp8_cast_transpose import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89)


def prepare(x: Tensor, scale: Tensor) -> Metered:
    cast, (rows, columns) = load_cuda(__file__, "cast_transpose"), x.shape
    out, out_t = (x.new_empty(shape, dtype=torch.float8_e4m3fn) for shape in ((rows, columns), (columns, rows)))
    amax = x.new_empty((), dtype=torch.float32)

    def step() -> tuple[Tensor, ...]:
        cast(x, scale, out, out_t, amax, rows, columns)
        return out.view(torch.uint8), out_t.view(torch.uint8), amax

    return metered(step, x, scale)
