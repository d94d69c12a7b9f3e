"""The pages go to page-locked host memory and come back: gathered on the GPU, so each way takes four large copies."""

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
        pages = table.flatten()
        for store, host in zip(stores, away):
            host.copy_(store[pages], non_blocking=True)
        given_away(stores, pages)  # behind the copies, on the same stream
        for store, host in zip(stores, away):
            store.index_copy_(0, pages, host.to(store.device, non_blocking=True))
        states = forward(weights, shape, history[:, -1:], last, continuing_pages(pool, table, last))[:, 0]
        return greedy(weights, states), states

    return step
