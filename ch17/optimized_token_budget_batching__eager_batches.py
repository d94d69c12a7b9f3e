"""Sorted by length, and a batch ends at a budget of tokens, not of requests: little padding, and no batch is small."""

from typing import Any

import torch
from torch import Tensor

from ch17.baseline_token_budget_batching import embedded
from ch17.baseline_token_budget_batching import workload as workload
from common.python.workload import Step


def batches_of(lengths: list[int], budget: int) -> list[list[int]]:
    """Numbers of requests by rising length, cut before a batch, padded, would exceed the budget."""
    batches: list[list[int]] = [[]]
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if (len(batches[-1]) + 1) * lengths[index] > budget and batches[-1]:
            batches.append([])
        batches[-1].append(index)
    return batches


def prepare(tokens: Tensor, lengths: Tensor, weights: dict[str, Any], heads: int, budget: int) -> Step:
    @torch.inference_mode()
    def step() -> Tensor:
        counts = lengths.tolist()
        requests, batches = tokens.split(counts), batches_of(counts, budget)
        rows = torch.cat([embedded([requests[index] for index in batch], weights, heads) for batch in batches])
        order = torch.tensor([index for batch in batches for index in batch])
        return rows[order.argsort().to(rows.device)]

    return step
