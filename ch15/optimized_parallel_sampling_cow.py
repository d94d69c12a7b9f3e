"""Samples share the prompt's pages and count who holds each: a page is copied when one of several holders writes it."""

from collections import Counter

import torch
from torch import Tensor

from ch15.baseline_parallel_sampling_cow import decode
from ch15.baseline_parallel_sampling_cow import workload as workload
from common.python.workload import Step

PAGE = 16  # tokens, as in vLLM


def stored(new: Tensor, spare: int) -> Tensor:
    """Prompts (requests, tokens, ...) in a pool of pages (pages, PAGE, ...), and `spare` pages behind them."""
    span = -(-new.shape[1] // PAGE)
    pool = new.new_empty(len(new) * span + spare, PAGE, *new.shape[2:])
    pool[: len(new) * span].unflatten(0, (-1, span)).flatten(1, 2)[:, : new.shape[1]] = new
    return pool


def writable(pools: list[Tensor], table: list[list[int]], place: int, used: int) -> int:
    """Gives each sample a page of its own for its token at `place`, and returns how many pages are then in use."""
    slot, copies = place // PAGE, list[tuple[int, int]]()
    holders = Counter(pages[slot] for pages in table if slot < len(pages))
    for pages in table:
        if slot == len(pages):  # the last page is full
            pages.append(used)
        elif holders[pages[slot]] > 1:
            holders[pages[slot]] -= 1
            copies.append((pages[slot], used))
            pages[slot] = used
        else:  # it is the only one that is left
            continue
        used += 1
    if copies:
        sources, targets = torch.tensor(copies).T.to(pools[0].device)
        for pool in pools:
            pool[targets] = pool[sources]
    return used


def prepare(keys: Tensor, values: Tensor, queries: Tensor, fresh: Tensor) -> Step:
    (steps, rows), (requests, prompt) = queries.shape[:2], keys.shape[:2]
    span, longest = -(-prompt // PAGE), -(-(prompt + steps) // PAGE)
    spare = rows * (longest - span) + (rows - requests if prompt % PAGE else 0)

    def step() -> Tensor:
        out, pools, used = torch.empty_like(queries), [stored(new, spare) for new in (keys, values)], requests * span
        table = [list(range(row * requests // rows * span, (row * requests // rows + 1) * span)) for row in range(rows)]
        for index, place in enumerate(range(prompt, prompt + steps)):
            if (now := writable(pools, table, place, used)) != used or not index:
                pages, used = torch.tensor(table).to(keys.device), now
            decode(pools, pages, place, queries[index], fresh[index], out[index])
        return out

    return step
