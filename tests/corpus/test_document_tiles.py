"""Chapter 18's list of tiles for packed documents: which tiles of keys each tile of queries sees, the longest first."""

from interpreter import interpret

INTERPRETED = """
import sys
import torch
import triton
from ch18.optimized_flex_document_mask import plan

document = torch.arange(len(sys.argv) - 1).repeat_interleave(torch.tensor([int(n) for n in sys.argv[1:]]))
tokens, every = len(document), torch.arange(len(document))
rows = triton.cdiv(tokens, 128)
begins, tiles = (torch.empty(rows, n, dtype=torch.int32) for n in (128, 3))
plan[(rows,)](document, begins, tiles, tokens, rows, tokens.bit_length(), 128, triton.next_power_of_2(rows))
assert begins.flatten()[:tokens].tolist() == torch.searchsorted(document, document).tolist()
live = (document[:, None] == document) & (every <= every[:, None])
for row, whole, cut in tiles.tolist():
    seen = live[row * 128 : row * 128 + 128]
    assert seen[:, (row - whole) * 128 : row * 128].all()
    assert cut == sum(seen[:, i * 128 : i * 128 + 128].any().item() for i in range(row)) - whole
assert sorted(tiles[:, 0].tolist()) == list(range(rows))
lengths = (tiles[:, 1] + tiles[:, 2]).tolist()
assert lengths == sorted(lengths, reverse=True)
"""


def test_each_tile_of_queries_visits_the_tiles_with_a_live_key() -> None:
    interpret(INTERPRETED, (331,), (70, 300, 5, 256), (128, 128, 600, 1, 200))
