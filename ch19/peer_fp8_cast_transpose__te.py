"""Transformer Engine's quantizer of delayed scaling: one kernel casts, stores both ways and takes the maximum.

For version 2.17. On GPUs whose fp8 products take operands of either order, sm_100 and sm_103 among them, it leaves the
transposed copy out: they need none, and this workload asks for it.
"""

import torch
from torch import Tensor

from ch19.baseline_fp8_cast_transpose import metered
from ch19.baseline_fp8_cast_transpose import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

with torch._dynamo.config.patch(error_on_nested_jit_trace=True):  # Transformer Engine changes it for the whole process
    from transformer_engine.pytorch import Float8Quantizer
    from transformer_engine_torch import DType

requires = needs(modules=["transformer_engine.pytorch"], targets=["sm_89", "sm_90a", "sm_120a", "sm_121a"])


def prepare(x: Tensor, scale: Tensor) -> Metered:
    amax = x.new_zeros(1, dtype=torch.float32)
    quantizer = Float8Quantizer(scale, amax, DType.kFloat8E4M3, rowwise=True, columnwise=True)
    cast = quantizer.make_empty(x.shape, dtype=x.dtype, device=x.device)

    def step() -> tuple[Tensor, ...]:
        amax.zero_()  # the kernel only raises it
        quantizer.update_quantized(x, cast)
        codes, transposed = cast.get_data_tensors()
        return codes, transposed, amax[0]

    return metered(step, x, scale)
