"""Both streams are captured as one CUDA graph: the host launches once, so a slow one cannot hold up the copies."""

from collections.abc import Callable

import torch
from torch import Tensor

from ch15.baseline_preempt_swap import given_away
from ch15.baseline_preempt_swap import workload as workload
from common.models.caches import Cache, continuing_pages
from common.models.decoder import Shape, Weights, forward, greedy
from common.models.graphs import replayable
from common.python.workload import Step

SLOTS = 2  # one is copied while the other is filled or read


def replayed(work: Callable[[], tuple[Tensor, Tensor]], like: Tensor) -> Step:
    """`work` as one graph. Its answer lies where the capture put it, and each replay writes it anew."""
    answer: list[Tensor] = []

    def keep() -> None:
        answer[:] = work()

    again = replayable(keep, like.device)

    def step() -> tuple[Tensor, Tensor]:
        again()
        return answer[0], answer[1]

    return step


def prepare(
    weights: Weights, shape: Shape, history: Tensor, table: Tensor, keys: list[Tensor], values: list[Tensor]
) -> Step:
    stores = [store for layer in zip(keys, values) for store in layer]  # in the order in which a token needs them
    form = (table.numel(), *keys[0].shape[1:])
    away = [torch.empty(form, dtype=store.dtype, pin_memory=store.is_cuda) for store in stores]
    slots = [keys[0].new_empty(form) for _ in range(SLOTS)]
    last = torch.full_like(history[:, -1:], history.shape[1] - 1)
    gpu = torch.get_device_module(history.device)
    copies, carried = gpu.Stream(), [gpu.Event() for _ in stores]

    def carry(index: int, target: Tensor, source: Tensor) -> None:
        """Copy behind all that is enqueued so far, beside all that follows."""
        copies.wait_stream(gpu.current_stream())
        with gpu.stream(copies):
            target.copy_(source, non_blocking=True)
            carried[index].record(copies)

    def fetch(index: int) -> None:
        if index < len(stores):
            carry(index, slots[index % SLOTS], away[index])

    @torch.inference_mode()
    def work() -> tuple[Tensor, Tensor]:
        pages, compute = table.flatten(), gpu.current_stream()
        for index, store in enumerate(stores):
            if index >= SLOTS:
                compute.wait_event(carried[index - SLOTS])
            torch.index_select(store, 0, pages, out=slots[index % SLOTS])
            carry(index, away[index], slots[index % SLOTS])
        given_away(stores, pages)  # what they held is in a slot or on the host
        for index in range(SLOTS):
            fetch(index)  # behind the last copy out: no page comes back before all have left
        attend = continuing_pages(Cache(keys, values), table, last)

        def attend_when_back(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            for index in (2 * layer, 2 * layer + 1):
                compute.wait_event(carried[index])
                stores[index].index_copy_(0, pages, slots[index % SLOTS])
                fetch(index + SLOTS)
            return attend(layer, q, k, v)

        states = forward(weights, shape, history[:, -1:], last, attend_when_back)[:, 0]
        return greedy(weights, states), states

    return replayed(work, history)
