"""The prompt's keys and values are copied for each sample that continues it, though all samples read the same ones."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # of Llama-3.1-8B


def inputs(draw: Draw, requests: int, samples: int, prompt: int, steps: int, dtype: str) -> Inputs:
    """The prompts' keys and values arrive; then in each step one query, key and value of each sample."""
    rows, element = requests * samples, getattr(torch, dtype)
    keys, values = (draw.normal(requests, prompt, KV_HEADS, HEAD_DIM, dtype=element) for _ in range(2))
    fresh = draw.normal(steps, 2, rows, KV_HEADS, HEAD_DIM, dtype=element)
    queries = draw.normal(steps, rows, HEADS, HEAD_DIM, std=2.0, dtype=element)
    return {"keys": keys, "values": values, "queries": queries, "fresh": fresh}


def reference(keys: Tensor, values: Tensor, queries: Tensor, fresh: Tensor) -> Tensor:
    """What each step's queries see of the prompt and of their own sample's tokens: (steps, rows, heads, head_dim)."""
    told, form = [], (len(keys), -1, KV_HEADS)
    for step, query in enumerate(queries):
        q = query.view(*form, HEADS // KV_HEADS, HEAD_DIM) / HEAD_DIM**0.5
        own_keys, own_values = (of.reshape(step + 1, *form, HEAD_DIM) for of in fresh[: step + 1].unbind(1))
        scores = torch.einsum("rshgd,rthd->rshgt", q, keys), torch.einsum("rshgd,trshd->rshgt", q, own_keys)
        of_prompt, own = torch.cat(scores, -1).softmax(-1).split([keys.shape[1], step + 1], -1)
        seen = torch.einsum("rshgt,rthd->rshgd", of_prompt, values)
        told.append((seen + torch.einsum("rshgt,trshd->rshgd", own, own_values)).flatten(2, 3).flatten(0, 1))
    return torch.stack(told)


def cost(requests: int, samples: int, prompt: int, steps: int, dtype: str) -> Cost:
    """All that comes in is read, and what the queries see is written."""
    seen, new = steps * requests * samples, steps * requests * samples * 2 * KV_HEADS * HEAD_DIM
    read = requests * prompt * 2 * KV_HEADS * HEAD_DIM + new + seen * HEADS * HEAD_DIM
    return Cost(read=2 * read, write=2 * seen * HEADS * HEAD_DIM, items=seen, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"requests": 32, "samples": 8, "prompt": 2039, "steps": 8, "dtype": "bfloat16"},
        "test": {"requests": 2, "samples": 3, "prompt": 30, "steps": 4, "dtype": "float16"},  # interpreted: no bf16
    },
    tolerance=1e-2,  # of bf16 shares and sums
    goal="memory",
)

ROWS, TOKENS = tl.constexpr(16), tl.constexpr(64)  # of queries: those that share a key head, filled up for the dot
H, G, D = (tl.constexpr(n) for n in (KV_HEADS, HEADS // KV_HEADS, HEAD_DIM))


@triton.jit
def attend(queries, keys, values, table, out, length, page, span):
    """One program for a sample and a key head: queries, out (samples, H, G, D); keys, values (pages, page, H, D);
    table (samples, span): the pages of each sample in order."""
    sample, head = tl.program_id(0), tl.program_id(1)
    row, dim = tl.arange(0, ROWS)[:, None], tl.arange(0, D)[None, :]
    mine, present = (sample * H + head) * G * D + row * D + dim, row < G
    query = tl.load(queries + mine, mask=present, other=0.0)
    largest, share = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, D), tl.float32)
    for first in range(0, length, TOKENS):
        token = first + tl.arange(0, TOKENS)
        held = token < length
        number = tl.load(table + sample * span + token // page, mask=held, other=0).to(tl.int64)
        place = ((number * page + token % page) * H + head) * D
        key = tl.load(keys + place[:, None] + dim, mask=held[:, None], other=0.0)
        value = tl.load(values + place[:, None] + dim, mask=held[:, None], other=0.0)
        scores = tl.where(held[None, :], tl.dot(query, tl.trans(key)) * D**-0.5, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weight, faded = tl.exp(scores - higher[:, None]), tl.exp(largest - higher)
        largest, share = higher, share * faded + tl.sum(weight, 1)
        total = tl.dot(weight.to(value.dtype), value, total * faded[:, None])
    tl.store(out + mine, total / share[:, None], mask=present)


def decode(pools: list[Tensor], table: Tensor, place: int, query: Tensor, new: Tensor, out: Tensor) -> None:
    """The token at `place` of each sample goes to the page that the table names, and its query sees all up to it."""
    page = pools[0].shape[1]
    for pool, of_step in zip(pools, new):
        pool[table[:, place // page], place % page] = of_step
    attend[len(table), KV_HEADS](query, *pools, table, out, place + 1, page, table.shape[1], num_stages=3)


def prepare(keys: Tensor, values: Tensor, queries: Tensor, fresh: Tensor) -> Step:
    steps, rows = queries.shape[:2]
    table = torch.arange(rows, device=keys.device)[:, None]  # a page for each sample, as long as it will be

    def step() -> Tensor:
        out = torch.empty_like(queries)
        pools = [new.new_empty(rows, new.shape[1] + steps, *new.shape[2:]) for new in (keys, values)]
        for pool, new in zip(pools, (keys, values)):
            pool[:, : new.shape[1]].unflatten(0, (len(new), -1)).copy_(new[:, None])
        for index in range(steps):
            decode(pools, table, keys.shape[1] + index, queries[index], fresh[index], out[index])
        return out

    return step
