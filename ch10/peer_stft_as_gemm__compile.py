"""torch.compile of the calls: framing and windowing are fused, power is, and the FFT stays cuFFT's."""

import torch
from torch import Tensor

from ch10.baseline_stft_as_gemm import filters, hann, log_mel
from ch10.baseline_stft_as_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(sound: Tensor) -> Step:
    compiled = torch.compile(log_mel, dynamic=False)
    window, mel = hann(sound), filters(sound)

    def step() -> Tensor:
        return compiled(sound, window, mel)

    return step
