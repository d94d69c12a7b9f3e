"""The language-model head as it is written: all logits, their fp32 copy and both gradients of them stand in memory."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, width: int, vocabulary: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        # Logits of standard deviation 2: a softmax with some peaks, so that its part in the gradients can be seen.
        "hidden": draw.normal(tokens, width, std=2.0, dtype=element),
        "weight": draw.normal(vocabulary, width, std=width**-0.5, dtype=element),
        "targets": draw.integers(tokens, high=vocabulary),
    }


def reference(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    logs = (hidden @ weight.T).log_softmax(dim=1)
    hits = targets[:, None]
    loss = -logs.gather(1, hits).mean()
    slopes = logs.exp_().scatter_add_(1, hits, -torch.ones_like(hits, dtype=logs.dtype)).div_(len(hits))
    return loss, slopes @ weight, slopes.T @ hidden


def cost(tokens: int, width: int, vocabulary: int, dtype: str) -> Cost:
    operands = 2 * (tokens + vocabulary) * width  # both in, and their gradients out
    flops = 3 * 2 * tokens * width * vocabulary  # one product forward, two backward
    read = operands + 8 * tokens
    return Cost(flops=flops, dtype="bf16", read=read, write=operands, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # The head of a 7B Llama 2. One matrix of logits has 262 M elements: 0.5 GB in bf16, 1 GB in fp32.
        "bench": {"tokens": 8192, "width": 4096, "vocabulary": 32000, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; more tokens than words, so that four of five words are
        # some token's target: where the last one is nobody's, its gradient could be left out within the tolerance
        "test": {"tokens": 211, "width": 75, "vocabulary": 131, "dtype": "float16"},
    },
    # Of rounding to bf16 as the gradients add up: in small copies of this problem on a CPU 0.005, and for the worst
    # element 0.1 of the rms. Leaving out the softmax's part of them makes 0.1 and 4.
    tolerance=0.02,
    goal="memory",
)


def prepare(hidden: Tensor, weight: Tensor, targets: Tensor) -> Step:
    leaves = [hidden.detach().requires_grad_(), weight.detach().requires_grad_()]

    def step() -> tuple[Tensor, ...]:
        logits = F.linear(*leaves)
        loss = F.cross_entropy(logits.float(), targets)
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return step
