"""One stream: the prompt is cut into chunks, and a decode kernel runs between any two, as schedulers do it."""

from itertools import zip_longest

import torch
from torch import Tensor

from ch11.baseline_priority_prefill_decode import decode, prefill
from ch11.baseline_priority_prefill_decode import workload as workload
from common.python.workload import Step


def prepare(prompts: Tensor, weights: Tensor, query: Tensor, keys: Tensor, values: Tensor) -> Step:
    rows = -(-len(prompts) // len(keys))  # as many chunks as links
    buffers, states = [torch.empty_like(prompts) for _ in range(2)], query.new_empty(len(keys) + 1, *query.shape)
    chunks = list(zip(prompts.split(rows), *(buffer.split(rows) for buffer in buffers)))
    prompted = buffers[(len(weights) - 1) % 2]

    def step() -> tuple[Tensor, Tensor]:
        states[0].copy_(query)
        for chunk, link in zip_longest(chunks, zip(states, keys, values, states[1:])):
            if chunk:  # rounding may leave the last links without one
                prefill(chunk[0], weights, chunk[1:])
            decode(*link)
        return prompted, states

    return step
