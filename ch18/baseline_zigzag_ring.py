"""Each rank holds a contiguous part of a causal text: the last rank has most to do, and the first one waits for it."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, heads: int, width: int) -> Inputs:
    """The queries, keys and values of a rank's tokens, which come after those of the ranks before it."""
    return {
        # Sharp scores, of standard deviation 2: flat ones make late outputs small beside the roundings of early ones.
        "q": draw.normal(tokens, heads, width, std=2.0, dtype=torch.bfloat16),
        "kv": draw.normal(tokens, 2, heads, width, dtype=torch.bfloat16),
    }


def reference(rank: int, q: list[Tensor], kv: list[Tensor]) -> Tensor:
    keys, values = torch.cat(kv).unbind(1)
    place, attended = torch.arange(len(keys), device=keys.device), []
    for rows, at in zip(q[rank].split(512), place.tensor_split(len(q))[rank].split(512)):  # 2 GiB of scores at a time
        scores = torch.einsum("qhd,khd->hqk", rows, keys) * rows.shape[-1] ** -0.5
        shares = scores.masked_fill_(place > at[:, None], -torch.inf).softmax(-1)
        attended.append(torch.einsum("hqk,khd->qhd", shares, values))
    return torch.cat(attended)


def cost(tokens: int, heads: int, width: int, ranks: int = 2) -> Cost:
    """A rank's share of all products. What has to cross the link takes a tenth of their time, and goes beside them."""
    numbers, pairs = tokens * heads * width, tokens * (ranks * tokens + 1) // 2
    return Cost(flops=4 * heads * width * pairs, dtype="bf16", read=6 * numbers, write=2 * numbers, items=tokens)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"tokens": 32768, "heads": 8, "width": 128},
        "test": {"tokens": 74, "heads": 3, "width": 64},
    },
    tolerance=0.04,  # bfloat16 rounds three times, also outputs 30 times the rms, of rows that few keys rule
    gpus=2,
    clock="end_to_end",
)


def attend(q: Tensor, kv: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Outputs (tokens, heads, width), and the logarithm of each row's sum of exponentials (tokens, heads, 1)."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, *kv.unbind(1)))
    if q.is_cuda:
        out, total, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
    else:
        out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return out[0].transpose(0, 1), total.reshape(*out.shape[1:3], 1).transpose(0, 1)


def merge(out: Tensor, total: Tensor, more: Tensor, more_total: Tensor) -> None:
    """Add what the same queries found among further keys; the first two are overwritten."""
    out.lerp_(more, torch.sigmoid(more_total - total).to(out.dtype))
    total.copy_(torch.logaddexp(total, more_total))


def ring(kv: Tensor, room: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Every rank and its keys and values, this one first; those of the next are on their way meanwhile."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for turn in range(ranks):
        under_way, coming = list[dist.Work](), room[turn % 2]
        if turn + 1 < ranks:
            send = dist.P2POp(dist.isend, kv, (rank + 1) % ranks)
            receive = dist.P2POp(dist.irecv, coming, (rank - 1) % ranks)
            under_way = dist.batch_isend_irecv([send, receive])
        yield (rank - turn) % ranks, kv
        for work in under_way:
            work.wait()
        kv = coming


def prepare(q: Tensor, kv: Tensor) -> Step:
    rank, room = dist.get_rank(), kv.new_empty(2, *kv.shape)

    def step() -> Tensor:
        blocks = ring(kv, room)
        out, total = attend(q, next(blocks)[1], causal=True)
        for source, theirs in blocks:
            if source < rank:  # what comes later than all of this rank's tokens is passed on unread
                merge(out, total, *attend(q, theirs, causal=False))
        return out

    return step
