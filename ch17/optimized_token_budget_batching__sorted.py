"""Sorted by length first: a batch of 64 pads little, but 64 short requests are too few tokens to fill a GPU."""

from typing import Any

import torch
from torch import Tensor

from ch17.baseline_token_budget_batching import BATCH, embedded
from ch17.baseline_token_budget_batching import workload as workload
from common.python.workload import Step


def prepare(tokens: Tensor, lengths: Tensor, weights: dict[str, Any], heads: int, budget: int) -> Step:
    @torch.inference_mode()
    def step() -> Tensor:
        requests, order = tokens.split(lengths.tolist()), lengths.argsort()
        batches = [[requests[index] for index in batch] for batch in order.split(BATCH)]
        rows = torch.cat([embedded(batch, weights, heads) for batch in batches])
        return rows[order.argsort().to(rows.device)]

    return step
