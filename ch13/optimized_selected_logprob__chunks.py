"""A few tokens at a time: the next ones' logits take the memory of these, and the chosen words' figures alone stay."""

import torch
from torch import Tensor

from ch13.baseline_selected_logprob import log_probabilities
from ch13.baseline_selected_logprob import workload as workload
from common.python.workload import Step

CHUNK = 256  # tokens: with fewer, reading the head costs more time than the products


def prepare(hidden: Tensor, head: Tensor, chosen: Tensor) -> Step:
    chunks = list(zip(hidden.split(CHUNK), chosen.split(CHUNK)))

    def step() -> Tensor:
        return torch.cat([log_probabilities(states, head, words) for states, words in chunks])

    return step
