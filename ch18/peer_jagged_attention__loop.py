"""PyTorch without padding: one user after the other, two products each, and scores as large as that user's history."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from ch18.baseline_jagged_attention import workload as workload
from common.python.workload import Step

ALIGNED = 8  # keys: rows of scores have whole 16 bytes, and what lies behind a history is masked as later


def prepare(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, starts: Tensor) -> Step:
    out, scale = torch.empty_like(q), q.shape[2] ** -0.5

    def step() -> Tensor:
        queries, start = q * scale, 0
        for length in lengths.tolist():
            own, seen = slice(start, start + length), slice(start, start + -(-length // ALIGNED) * ALIGNED)
            scores = queries[own].transpose(0, 1) @ k[seen].permute(1, 2, 0)
            torch.bmm(silu(scores, inplace=True).tril_(), v[seen].transpose(0, 1), out=out[own].transpose(0, 1))
            start += length
        return out.div_(lengths.max())

    return step
