"""Liger's RMSNorm backward: one program an SM, partial sums of the gain's gradient, and a sum over them by torch."""

from torch import Tensor

from ch09.baseline_norm_backward import workload as workload
from common.python.requirements import imported, needs
from common.python.workload import Step

requires = needs(modules=["liger_kernel"], gpus=1)
rms_norm = imported("liger_kernel.ops.rms_norm", without="peft")


def prepare(x: Tensor, slope: Tensor, gain: Tensor, scale: Tensor) -> Step:
    block, warps = rms_norm.calculate_settings(x.shape[1])
    casting = rms_norm._CASTING_MODE_GEMMA.value  # all in fp32, as the other variants

    def step() -> tuple[Tensor, ...]:
        return rms_norm.rms_norm_backward(slope, x, gain, scale, 0.0, casting, block, warps, False, None)

    return step
