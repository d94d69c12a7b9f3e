"""Ids are sorted first, so that a row's tokens are neighbours: they are summed in registers, and it is written once."""

import torch
from torch import Tensor

from ch07.baseline_embedding_grad_sorted import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
CHUNK = 64  # tokens of a block, as in the .cu file


def prepare(table: Tensor, ids: Tensor, grads: Tensor) -> Step:
    sum_by_id, out = load_cuda(__file__, "sum_by_id"), torch.empty_like(table)
    (vocab, width), tokens = table.shape, len(ids)
    needed = torch.empty(1, dtype=torch.int64, pin_memory=True)
    load_cuda(__file__, "sort_bytes")(needed, tokens, vocab)
    scratch = ids.new_empty(int(needed), dtype=torch.uint8)
    numbers = torch.arange(tokens, dtype=torch.int32, device=ids.device)
    ordered, tokens_of = torch.empty_like(ids), torch.empty_like(numbers)
    heads = grads.new_empty(-(-tokens // CHUNK), width)

    def step() -> Tensor:
        sort = ids, numbers, ordered, tokens_of, scratch, int(needed)
        sum_by_id(grads, out, heads, *sort, tokens, vocab, width)
        return out

    return step
