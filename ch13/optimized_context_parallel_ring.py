"""Pieces of keys and values go round a ring while queries attend to the piece that came before."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from ch13.baseline_context_parallel_ring import workload as workload
from common.models.context_parallel import attend
from common.python.workload import Step

PIECES = 8  # of a rank's keys and values: two of them are all that another rank has room for


def ring(kv: Tensor, room: Tensor) -> Iterator[Tensor]:
    """This rank's keys and values, then all others', piece by piece; the next piece is on its way meanwhile."""
    rank, ranks, held, pieces = dist.get_rank(), dist.get_world_size(), kv, kv.chunk(PIECES)
    for turn in range(len(pieces) * (ranks - 1)):
        piece, hops = divmod(turn, ranks - 1)
        leaving, coming = held if hops else pieces[piece], room[turn % 2, : len(pieces[piece])]
        send = dist.P2POp(dist.isend, leaving, (rank + 1) % ranks)
        under_way = dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, coming, (rank - 1) % ranks)])
        yield held
        for work in under_way:
            work.wait()
        held = coming
    yield held


def prepare(q: Tensor, kv: Tensor) -> Step:
    room = kv.new_empty(2, *kv.chunk(PIECES)[0].shape)

    def step() -> Tensor:
        blocks = ring(kv, room)
        out, total = attend(q, next(blocks))
        for theirs in blocks:
            more, more_total = attend(q, theirs)
            out.lerp_(more, torch.sigmoid(more_total - total).to(out.dtype))
            torch.logaddexp(total, more_total, out=total)
            del more  # before the next piece's outputs are made
        return out

    return step
