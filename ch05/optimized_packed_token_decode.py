"""The packed words cross PCIe as they are, and a kernel behind the link makes integers of them at the rate of HBM."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch05.baseline_packed_token_decode import BITS
from ch05.baseline_packed_token_decode import workload as workload
from common.python.workload import Step

BLOCK = 1024


@triton.jit
def unpack(words, tokens, count, length, BITS: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word, shift = token * BITS // 32, token * BITS % 32
    low = tl.load(words + word, token < count, 0).to(tl.int64) & 0xFFFFFFFF
    high = tl.load(words + word + 1, (token < count) & (word + 1 < length), 0).to(tl.int64) & 0xFFFFFFFF
    tl.store(tokens + token, ((low | high << 32) >> shift & ((1 << BITS) - 1)).to(tl.int32), token < count)


def prepare(words: Tensor, tokens: Tensor) -> Step:
    arrived, count = torch.empty(words.shape, dtype=words.dtype, device=tokens.device), len(tokens)

    def step() -> Tensor:
        arrived.copy_(words, non_blocking=True)
        unpack[(triton.cdiv(count, BLOCK),)](arrived, tokens, count, len(arrived), BITS=BITS, BLOCK=BLOCK)
        return tokens

    return step
