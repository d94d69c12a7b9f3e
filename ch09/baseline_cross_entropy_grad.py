"""Cross entropy by torch's calls and autograd: log-probabilities and two tensors of their size go through memory."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, vocabulary: int) -> Inputs:
    return {
        # Of standard deviation 3: a few words have most of the probability, so its part of the gradient can be seen.
        "logits": draw.normal(tokens, vocabulary, std=3.0, dtype=torch.float16),
        "targets": draw.integers(tokens, high=vocabulary),
    }


def reference(logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    logs, hits = logits.log_softmax(dim=1), targets[:, None]
    loss = -logs.gather(1, hits).sum()  # the training loop divides by the tokens of all ranks
    return loss, logs.exp_().scatter_add_(1, hits, -torch.ones_like(hits, dtype=logs.dtype))


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda tokens, vocabulary: Cost(
        read=2 * tokens * vocabulary + 8 * tokens, write=2 * tokens * vocabulary, items=tokens, unit="tokens"
    ),
    # The vocabulary of Llama 3; one matrix of logits is 525 MB.
    sizes={"bench": {"tokens": 2048, "vocabulary": 128256}, "test": {"tokens": 67, "vocabulary": 4999}},
    # A row's gradient has one element near -1 and an rms of 0.003. In fp16 that element may be off by 2.4e-4, 8.5% of
    # the rms, where ten times this is allowed. In bf16 it would be eight times further off; the bytes are the same.
    tolerance=0.012,
    mutates=("logits",),  # nothing reads them once the gradient is known
)


def prepare(logits: Tensor, targets: Tensor) -> Step:
    leaf = logits.detach().requires_grad_()

    def step() -> tuple[Tensor, ...]:
        loss = F.cross_entropy(leaf.float(), targets, reduction="sum")
        return loss.detach(), *torch.autograd.grad(loss, leaf)

    return step
