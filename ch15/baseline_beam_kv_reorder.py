"""Each step copies the whole cache, so that each beam's row holds the keys and values of its own ancestors."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # of Llama-3.1-8B


def genealogy(draw: Draw, steps: int, requests: int, beams: int) -> Tensor:
    """The row that each (steps, requests, beams) goes on from: a request's best has two children, the worst none."""
    place = draw.uniform(steps + 1, requests, beams).argsort(-1)  # of the beams by rank, in each step
    first = beams * torch.arange(requests, device=place.device)
    parent = place[:-1, :, (torch.arange(beams, device=place.device) - 1).clamp_min(0)]
    return torch.empty_like(parent).scatter_(-1, place[1:], parent + first[:, None])


def inputs(draw: Draw, requests: int, beams: int, history: int, steps: int, dtype: str) -> Inputs:
    """A layer's keys and values, a row for each beam, with room for what comes in each step."""
    rows, element = requests * beams, getattr(torch, dtype)
    return {
        "queries": draw.normal(steps, rows, HEADS, HEAD_DIM, std=2.0, dtype=element),
        "caches": [draw.normal(rows, history + steps, KV_HEADS, HEAD_DIM, dtype=element) for _ in range(2)],
        "fresh": draw.normal(steps, 2, rows, KV_HEADS, HEAD_DIM, dtype=element),
        "parents": genealogy(draw, steps, requests, beams),
    }


def reference(queries: Tensor, caches: list[Tensor], fresh: Tensor, parents: Tensor) -> Tensor:
    """What each step's queries, to which is added what their parents saw, see: (steps, rows, heads, head_dim)."""
    told = [torch.zeros_like(queries[0])]
    stores = [cache[:, : -len(parents)] for cache in caches]
    for query, new, parent in zip(queries, fresh, parents.flatten(1)):
        stores = [torch.cat([store[parent], of_step[:, None]], 1) for store, of_step in zip(stores, new)]
        q = (query + told[-1][parent]).unflatten(1, (KV_HEADS, -1)) / HEAD_DIM**0.5
        shares = torch.einsum("rhgd,rthd->rhgt", q, stores[0]).softmax(-1)
        told.append(torch.einsum("rhgt,rthd->rhgd", shares, stores[1]).flatten(1, 2))
    return torch.stack(told[1:])


def cost(requests: int, beams: int, history: int, steps: int, dtype: str) -> list[Cost]:
    """A phase for each step, as its queries follow from the last. What beams have in common is read once."""
    token, rows, phases = 2 * KV_HEADS * HEAD_DIM, requests * beams, []
    for step in range(steps):
        later = sum(max(beams - age, 1) for age in range(1, step + 1))  # ancestors of each later token
        cached = requests * (max(beams - 1 - step, 1) * history + later) * token
        given = rows * (token + HEADS * HEAD_DIM)  # queries, or what they saw; and the new keys and values
        phases.append(Cost(read=2 * (cached + given), write=2 * given, items=rows, unit="tokens"))
    return phases


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"requests": 32, "beams": 4, "history": 2048, "steps": 4, "dtype": "bfloat16"},
        "test": {"requests": 2, "beams": 3, "history": 67, "steps": 3, "dtype": "float16"},  # interpreted: no bf16
    },
    tolerance=1.5e-2,  # of bf16 shares and sums; one element may be off by ten times that
    mutates=("caches",),
)

ROWS, TOKENS = tl.constexpr(16), tl.constexpr(64)  # of queries: those that share a key head, filled up for the dot
H, G, D = (tl.constexpr(n) for n in (KV_HEADS, HEADS // KV_HEADS, HEAD_DIM))


@triton.jit
def attend(queries, seen, keys, values, owners, out, length, room):
    """One program for a row and a key head; queries (rows, H, G, D); keys (rows, room, H, D); owners (rows, room)."""
    beam, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, dim = tl.arange(0, ROWS)[:, None], tl.arange(0, D)[None, :]
    mine, present = (beam * H + head) * G * D + row * D + dim, row < G
    query = tl.load(queries + mine, mask=present, other=0.0) + tl.load(seen + mine, mask=present, other=0.0)
    largest, share = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, D), tl.float32)
    for first in range(0, length, TOKENS):
        token = first + tl.arange(0, TOKENS)
        held = token < length
        place = beam * room + token
        if owners is not None:
            place = tl.load(owners + place, mask=held, other=0).to(tl.int64) * room + token
        place = (place * H + head) * D
        key = tl.load(keys + place[:, None] + dim, mask=held[:, None], other=0.0)
        value = tl.load(values + place[:, None] + dim, mask=held[:, None], other=0.0)
        scores = tl.where(held[None, :], tl.dot(query, tl.trans(key)) * D**-0.5, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weight, faded = tl.exp(scores - higher[:, None]), tl.exp(largest - higher)
        largest, share = higher, share * faded + tl.sum(weight, 1)
        total = tl.dot(weight.to(value.dtype), value, total * faded[:, None])
    tl.store(out + mine, total / share[:, None], mask=present)


def decoding(queries: Tensor, caches: list[Tensor], fresh: Tensor, parents: Tensor, owners: Tensor | None) -> Step:
    """Without owners the cache follows the beams, else they (rows, room) do: at first each row owns its tokens."""
    own, room, parents = torch.arange(len(caches[0]), device=parents.device), caches[0].shape[1], parents.flatten(1)

    def step() -> Tensor:
        out, seen, stores, table = torch.empty_like(queries), torch.zeros_like(queries[0]), caches, owners
        for index, place in enumerate(range(room - len(parents), room)):
            if table is None:
                stores = [store.index_select(0, parents[index]) for store in stores]
            else:
                table = table.index_select(0, parents[index])
                table[:, place] = own
            for store, new in zip(stores, fresh[index]):
                store[:, place] = new
            given = queries[index], seen.index_select(0, parents[index]), *stores, table
            seen = out[index]
            attend[len(seen), KV_HEADS](*given, seen, place + 1, room, num_stages=3)
        return out

    return step


def prepare(queries: Tensor, caches: list[Tensor], fresh: Tensor, parents: Tensor) -> Step:
    return decoding(queries, caches, fresh, parents, None)
