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


def writable(pools: list[Tensor], table: Tensor, last: list[int], place: int, used: int) -> int:
    """Gives each sample a page of its own for its token at `place`, and returns how many pages are then in use.

    `last` are the samples' last pages, which the host keeps; `table` (samples, pages of each) is the GPU's.
    """
    sources, holders = list[int](), Counter(last)
    if place % PAGE == 0:  # the last pages are full
        last[:] = range(used, used + len(last))
    else:
        for sample, page in enumerate(last):
            if holders[page] > 1:  # else it is the only one that is left
                holders[page] -= 1
                last[sample] = used + len(sources)
                sources.append(page)
        if not sources:
            return used
        copied = torch.tensor(sources).to(table.device, non_blocking=True)
        for pool in pools:  # copies lie behind the pages in use, one after the other: no room in between is needed
            torch.index_select(pool[:used], 0, copied, out=pool[used : used + len(sources)])
    table[:, place // PAGE].copy_(torch.tensor(last), non_blocking=True)
    return used + (len(sources) or len(last))


def prepare(keys: Tensor, values: Tensor, queries: Tensor, fresh: Tensor) -> Step:
    (steps, rows), (requests, prompt) = queries.shape[:2], keys.shape[:2]
    span, longest = -(-prompt // PAGE), -(-(prompt + steps) // PAGE)
    spare = rows * (longest - span) + (rows - requests if prompt % PAGE else 0)

    def step() -> Tensor:
        out, pools, used = torch.empty_like(queries), [stored(new, spare) for new in (keys, values)], requests * span
        pages = torch.arange(used, device=keys.device).view(requests, 1, span)
        table = pages.new_empty(rows, longest)
        table[:, :span].unflatten(0, (requests, -1)).copy_(pages)
        last = [(row * requests // rows + 1) * span - 1 for row in range(rows)]
        for index, place in enumerate(range(prompt, prompt + steps)):
            used = writable(pools, table, last, place, used)
            decode(pools, table, place, queries[index], fresh[index], out[index])
        return out

    return step
