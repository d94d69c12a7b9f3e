"""NumPy unpacks tokens of 17 bits on one core, and then nearly twice as many bytes cross PCIe as the file has."""

import numpy
import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

BITS, GROUP = 17, 32  # 32 tokens of 17 bits are 17 words of 32 bits
CACHED = 2048  # groups that a core's cache holds, packed and unpacked


def inputs(draw: Draw, groups: int) -> Inputs:
    """Words of a shard whose tokens follow each other without gaps, lowest bits first, and where tokens are to go."""
    words = draw.host.integers(groups * BITS, low=-(1 << 31), high=1 << 31, dtype=torch.int32)
    tokens = torch.zeros(groups * GROUP, dtype=torch.int32, device=draw.device)
    return {"words": words.pin_memory() if tokens.is_cuda else words, "tokens": tokens}


def reference(words: Tensor, tokens: Tensor) -> Tensor:
    unsigned = words.view(-1, BITS).long() & 0xFFFFFFFF
    bits = unsigned[:, :, None] >> torch.arange(32, device=words.device) & 1
    places = 1 << torch.arange(BITS, device=words.device)
    return (bits.view(-1, GROUP, BITS) * places).sum(dim=2).int().flatten()


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda groups: Cost(
        pcie_bytes=4 * BITS * groups,
        write=4 * GROUP * groups,
        items=GROUP * groups,
        unit="tokens",
    ),
    sizes={"bench": {"groups": 1 << 18}, "test": {"groups": 4999}},  # 8.4 million tokens: 18 MB packed, 34 MB unpacked
    tolerance=0.0,  # integers
    mutates=("tokens",),
    clock="end_to_end",
)


def unpack(some: numpy.ndarray, out: numpy.ndarray) -> None:
    """Groups of words, (groups, 17), to their tokens, (groups, 32)."""
    for lane in range(GROUP):
        word, shift = divmod(BITS * lane, 32)
        low = some[:, word] >> shift
        if shift + BITS > 32:  # the token goes on in the next word
            low |= some[:, word + 1] << (32 - shift)
        numpy.bitwise_and(low, (1 << BITS) - 1, out=out[:, lane])


def prepare(words: Tensor, tokens: Tensor) -> Step:
    packed = words.numpy().view(numpy.uint32).reshape(-1, BITS)
    unpacked = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=tokens.is_cuda)
    lanes = unpacked.numpy().view(numpy.uint32).reshape(-1, GROUP)

    def step() -> Tensor:
        for first in range(0, len(packed), CACHED):
            unpack(packed[first : first + CACHED], lanes[first : first + CACHED])
        return tokens.copy_(unpacked, non_blocking=True)

    return step
