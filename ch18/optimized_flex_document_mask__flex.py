"""FlexAttention goes only to tiles that a token may see, which are found from where each document begins."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from ch18.baseline_flex_document_mask import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)

BLOCK = 128  # tokens of a tile's side
TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}  # on an H200 the fastest of a sweep without TMA


def ordered(wanted: Tensor) -> tuple[Tensor, Tensor]:
    """How many tiles of each row of [rows, columns] are wanted, and which: their numbers first, then the others'."""
    numbers = wanted.to(torch.int8).argsort(dim=1, descending=True, stable=True).int()
    return wanted.sum(dim=1, dtype=torch.int32)[None, None], numbers[None, None]


def block_mask(document: Tensor) -> tuple[Tensor, ...]:
    """Of each row of tiles, those with a live pair that need the mask, and those of live pairs alone."""
    tokens = len(document)
    begins = torch.searchsorted(document, document)  # the first token of each token's document
    tile = torch.arange((tokens + BLOCK - 1) // BLOCK, device=document.device)
    row, column = tile[:, None], tile[None, :]
    lowest, highest = begins[row * BLOCK], begins[(row * BLOCK + BLOCK - 1).clamp_max(tokens - 1)]
    whole = (column < row) & (column * BLOCK >= highest)  # all keys are in the document of the last query
    live = (column <= row) & (column >= lowest // BLOCK)
    return *ordered(live & ~whole), *ordered(whole)


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    lengths = (len(document), len(document))
    find, attend = (torch.compile(f, fullgraph=True, dynamic=False) for f in (block_mask, flex_attention))

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (document[query] == document[key]) & (key <= query)

    def step() -> Tensor:
        tiles = find(document)
        # The tiles of each key, which False leaves out, are for gradients alone.
        mask = BlockMask.from_kv_blocks(*tiles, BLOCK, visible, lengths, compute_q_blocks=False)
        return attend(q, k, v, block_mask=mask, kernel_options=TILES)

    return step
