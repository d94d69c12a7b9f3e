"""torchao's `to_mx` by torch.compile: the exponent is cut out of the maximum's bits, and a number is divided by it."""

from functools import partial

import torch
from torch import Tensor
from torchao.prototype.mx_formats.mx_tensor import to_mx

from ch19.baseline_mxfp8_quantize import BLOCK
from ch19.baseline_mxfp8_quantize import workload as workload
from common.models.formats import metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89, modules=["torchao.prototype.mx_formats.mx_tensor"])


def prepare(x: Tensor) -> Metered:
    cast = partial(to_mx, elem_dtype=torch.float8_e4m3fn, block_size=BLOCK)
    compiled = torch.compile(cast, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, Tensor]:
        exponents, codes = compiled(x)
        return codes.view(torch.uint8), exponents.view(torch.uint8)

    return metered(step, "e4m3", BLOCK)
