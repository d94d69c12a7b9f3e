"""torch.compile of the formula for one weight: a Triton kernel whose 64-bit shifts spare the test for two words."""

import torch
from torch import Tensor

from ch08.baseline_unpack_3bit import BITS
from ch08.baseline_unpack_3bit import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def unpacked(words: Tensor, n: int) -> Tensor:
    first = BITS * torch.arange(n, device=words.device, dtype=torch.int32)
    word = first >> 5
    low = words[word].long() & 0xFFFFFFFF
    high = words[(word + 1).clamp_max(len(words) - 1)].long() << 32
    codes = (low | high) >> (first & 31) & (1 << BITS) - 1
    return (codes.int() - (1 << BITS - 1)).to(torch.bfloat16)


def prepare(words: Tensor, n: int) -> Step:
    compiled = torch.compile(unpacked, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(words, n)

    return step
