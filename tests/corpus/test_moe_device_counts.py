"""Chapter 4's all-to-all by stores: every token comes to its expert once, its result home, and nothing beside it."""

from interpreter import interpret

INTERPRETED = """
import sys
import torch
from ch04.optimized_moe_all_to_all__device_counts import scale_and_return, send

ranks, tokens, width = map(int, sys.argv[1:])
block = 64
x = torch.randint(-99, 99, (ranks, tokens, width)).bfloat16()
to = torch.randint(ranks, (ranks, tokens))
to[0] = ranks - 1  # one sender needs all the room that there is for it in one box
gain = 0.5 ** torch.randint(3, (ranks, width)).bfloat16()  # exact products, for the interpreter cuts bfloat16 off
guard = 8
boxes = torch.full((ranks, ranks * tokens * width + guard), -7.0, dtype=torch.bfloat16)
outs = torch.full((ranks, tokens * width + guard), -7.0, dtype=torch.bfloat16)
numbers = torch.full((ranks, ranks * tokens + guard), -7, dtype=torch.int32)
counts = torch.zeros(ranks, ranks, dtype=torch.int32)
where = lambda held: torch.tensor([each.data_ptr() for each in held])
for _ in range(2):
    counts.zero_()
    outs[:, :-guard] = torch.nan
    for rank in range(ranks):
        send[(tokens,)](
            x[rank], to[rank], counts[rank], where(boxes), where(numbers), rank, tokens, width, BLOCK=block
        )
    for sender in range(ranks):
        assert counts[sender].tolist() == [int((to[sender] == rank).sum()) for rank in range(ranks)]
    for rank in range(ranks):
        scale_and_return[(ranks, 3)](
            boxes[rank], numbers[rank], where(counts), gain[rank], where(outs), rank, tokens, width, BLOCK=block
        )
    assert torch.equal(outs[:, :-guard].view(ranks, tokens, width), x * gain[to])
    for held in (boxes, outs, numbers):
        assert (held[:, -guard:] == -7).all()
"""


def test_each_token_is_scaled_by_its_expert_and_comes_home() -> None:
    interpret(INTERPRETED, (2, 11, 37), (3, 5, 64), (2, 1, 1))
