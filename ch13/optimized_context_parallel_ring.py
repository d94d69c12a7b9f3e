"""Pieces of keys and values go round a ring while queries attend to the piece that came before."""

import torch
from torch import Tensor

from ch13.baseline_context_parallel_ring import workload as workload
from common.models.context_parallel import attend
from common.models.link import ring
from common.python.workload import Step

PIECES = 8  # of a rank's keys and values: two of them are all that another rank has room for


def prepare(q: Tensor, kv: Tensor) -> Step:
    room = kv.new_empty(2, *kv.chunk(PIECES)[0].shape)

    def step() -> Tensor:
        blocks = ring(kv, room, PIECES)
        out, total = attend(q, next(blocks))
        for theirs in blocks:
            more, more_total = attend(q, theirs)
            out.lerp_(more, torch.sigmoid(more_total - total).to(out.dtype))
            torch.logaddexp(total, more_total, out=total)
            del more  # before the next piece's outputs are made
        return out

    return step
