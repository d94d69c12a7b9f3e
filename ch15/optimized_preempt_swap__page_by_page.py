"""Each page is copied where it lies, out and back: thousands of copies of 32 KiB, and each has a price of its own."""

import torch
from torch import Tensor

from ch15.baseline_preempt_swap import given_away
from ch15.baseline_preempt_swap import workload as workload
from common.models.caches import Cache, continuing_pages
from common.models.decoder import Shape, Weights, forward, greedy
from common.python.workload import Step


def prepare(
    weights: Weights, shape: Shape, history: Tensor, table: Tensor, keys: list[Tensor], values: list[Tensor]
) -> Step:
    stores, pool = [*keys, *values], Cache(keys, values)
    form = (table.numel(), *keys[0].shape[1:])
    away = [torch.empty(form, dtype=store.dtype, pin_memory=store.is_cuda) for store in stores]
    last = torch.full_like(history[:, -1:], history.shape[1] - 1)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        pages = table.flatten().tolist()  # a scheduler has them on the host
        for store, host in zip(stores, away):
            for page, room in zip(pages, host):
                room.copy_(store[page], non_blocking=True)
        given_away(stores, table.flatten())
        for store, host in zip(stores, away):
            for page, room in zip(pages, host):
                store[page].copy_(room, non_blocking=True)
        states = forward(weights, shape, history[:, -1:], last, continuing_pages(pool, table, last))[:, 0]
        return greedy(weights, states), states

    return step
