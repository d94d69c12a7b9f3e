"""One weight a thread, by a bit width known at run time: word, shift and a test for two words are computed for each."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(sm=80)
BITS = 3


def words_of(n: int) -> int:
    """32-bit words that hold n weights, one after the other without gaps."""
    return -(-n * BITS // 32)


def reference(words: Tensor, n: int) -> Tensor:
    periods = -(-n // 32)  # of 32 weights, which fill 3 words
    unsigned = pad(words.long() & 0xFFFFFFFF, (0, periods * BITS + 1 - len(words)))
    with_next = (unsigned[:-1] | unsigned[1:] << 32).view(periods, BITS)
    first = BITS * torch.arange(32, device=words.device)
    codes = with_next[:, first // 32] >> first % 32 & (1 << BITS) - 1
    return codes.flatten()[:n].short() - (1 << BITS - 1)


workload = Workload(
    inputs=lambda draw, n: {
        "words": draw.integers(words_of(n), low=-(1 << 31), high=1 << 31, dtype=torch.int32),
        "n": n,
    },
    reference=reference,
    cost=lambda n: Cost(read=4 * words_of(n), write=2 * n, items=n, unit="weights"),
    sizes={"bench": {"n": 1 << 27}, "test": {"n": 70003}},
    tolerance=0.0,  # -4 to 3 in bf16 are exact
)


def prepare(words: Tensor, n: int) -> Step:
    unpack, out = load_cuda(__file__, "unpack"), words.new_empty(n, dtype=torch.bfloat16)

    def step() -> Tensor:
        unpack(words, out, n, BITS)
        return out

    return step
