"""Chapter 4's put: every microbatch arrives where it belongs, with its own flag, and nothing beside it is written."""

from interpreter import interpret

INTERPRETED = """
import sys
import torch
from ch04.optimized_symmetric_put import put, wait

microbatches, n = int(sys.argv[1]), int(sys.argv[2])
blocks = -(-n // 64)
x = torch.randn(microbatches, n).bfloat16()
received = [torch.full((microbatches * n + 8,), -7.0, dtype=torch.bfloat16) for _ in range(3)]
arrived = [torch.zeros(microbatches, dtype=torch.int32) for _ in range(3)]
buffers, flags = (torch.tensor([held.data_ptr() for held in all_ranks]) for all_ranks in (received, arrived))
for _ in range(2):
    put[(blocks, microbatches)](x, buffers, flags, 1, n, BLOCK=64)
    assert arrived[1].tolist() == [blocks] * microbatches
    wait[(microbatches,)](arrived[1], blocks)
    assert not torch.stack(arrived).any(), "the flags are as they were, and nobody else's was raised"
assert torch.equal(received[1][:-8], x.flatten())
assert (received[1][-8:] == -7).all() and (received[0] == -7).all() and (received[2] == -7).all()
"""


def test_each_microbatch_is_stored_at_its_place_with_its_own_flag_behind_it() -> None:
    interpret(INTERPRETED, (3, 185), (2, 128), (1, 1))
