"""Weights are found again and kept, and so is their gradient: each a number for each pair of tokens, in HBM."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, heads: int, tokens: int, width: int, dtype: str) -> Inputs:
    """What a forward pass keeps for its gradient, and the gradient of what it gave."""
    spread = {"q": 0.5, "k": 1.0, "v": 1.0, "grad": 1.0}  # small scores, as in flash_forward
    drawn = {n: draw.normal(heads, tokens, width, std=std, dtype=getattr(torch, dtype)) for n, std in spread.items()}
    out, logs = torch.empty_like(drawn["q"]), drawn["q"].new_empty(heads, tokens, dtype=torch.float32)
    for head, (q, k, v) in enumerate(zip(*(drawn[name].float() for name in "qkv"))):
        scores = (q @ k.T).mul_(width**-0.5)
        logs[head] = scores.logsumexp(dim=1)
        out[head] = scores.sub_(logs[head, :, None]).exp_() @ v
    return drawn | {"out": out, "logs": logs}


def reference(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> tuple[Tensor, ...]:
    scale, found = q.shape[2] ** -0.5, []
    for a, b, c, above in zip(q, k, v, grad):  # one head at a time: a matrix of its scores is 2 GiB at bench size
        weights = (a @ b.T).mul_(scale).softmax(dim=1)
        change = above @ c.T
        change = change.sub_((change * weights).sum(dim=1, keepdim=True)).mul_(weights).mul_(scale)
        found.append((change @ b, change.T @ a, weights.T @ above))
    return tuple(torch.stack(each) for each in zip(*found))


def cost(heads: int, tokens: int, width: int, dtype: str) -> Cost:
    numbers = heads * tokens * width
    moved = {"read": 2 * 4 * numbers, "write": 2 * 3 * numbers}  # out and logs follow from the others
    return Cost(flops=5 * 2 * numbers * tokens, dtype="bf16", **moved, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # The gradient of flash_forward. Matrices of a number for each pair of tokens are 512 MiB a head each.
        "bench": {"heads": 8, "tokens": 16384, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"heads": 2, "tokens": 197, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # scores, weights, their gradient and the results are rounded to bf16, by 0.17% each on average
)


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    heads, tokens, width = q.shape
    scores, weights = q.new_empty(heads, tokens, tokens), q.new_empty(heads, tokens, tokens)
    of_q, of_k, of_v = (torch.empty_like(x) for x in (q, k, v))
    scaled = {"beta": 0, "alpha": width**-0.5}

    def step() -> tuple[Tensor, Tensor, Tensor]:
        torch.baddbmm(scores, q, k.mT, out=scores, **scaled)
        torch.softmax(scores, dim=2, out=weights)
        torch.bmm(weights.mT, grad, out=of_v)
        torch.bmm(grad, v.mT, out=scores)
        change = torch._softmax_backward_data(scores, weights, 2, q.dtype)
        torch.baddbmm(of_q, change, k, out=of_q, **scaled)
        torch.baddbmm(of_k, change.mT, q, out=of_k, **scaled)
        return of_q, of_k, of_v

    return step
