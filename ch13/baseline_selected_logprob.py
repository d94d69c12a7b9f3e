"""Logits, their fp32 copy and the log-softmax of all words are in memory; one number a token is picked of them."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, width: int, vocabulary: int) -> Inputs:
    """Hidden states that lean towards the words that were sampled, as a policy's do."""
    head = draw.normal(vocabulary, width, std=width**-0.5, dtype=torch.bfloat16)
    chosen = draw.integers(tokens, high=vocabulary)
    hidden = draw.normal(tokens, width, dtype=torch.bfloat16).add_(head[chosen], alpha=6)
    return {"hidden": hidden, "head": head, "chosen": chosen}


def log_probabilities(hidden: Tensor, head: Tensor, chosen: Tensor) -> Tensor:
    """Of the chosen words alone, through those of all."""
    logits = linear(hidden, head)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.log_softmax(-1).gather(-1, chosen[:, None]).squeeze(-1)


def reference(hidden: Tensor, head: Tensor, chosen: Tensor) -> Tensor:
    parts = zip(hidden.split(64), chosen.split(64))
    return torch.cat([log_probabilities(states, head, words) for states, words in parts])


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda tokens, width, vocabulary: Cost(
        flops=2 * tokens * width * vocabulary,
        dtype="bf16",
        read=2 * width * (tokens + vocabulary) + 8 * tokens,
        write=4 * tokens,
        items=tokens,
        unit="tokens",
    ),
    sizes={
        # Qwen3-0.6B's head: the logits are 1.2 GB, in fp32 2.5 GB, and so is their log-softmax
        "bench": {"tokens": 4096, "width": 1024, "vocabulary": 151936},
        "test": {"tokens": 301, "width": 43, "vocabulary": 211},
    },
    tolerance=1e-2,  # logits of up to 11 are rounded to bf16, and log-probabilities are about half as large
    goal="memory",
)


def prepare(hidden: Tensor, head: Tensor, chosen: Tensor) -> Step:
    def step() -> Tensor:
        return log_probabilities(hidden, head, chosen)

    return step
