"""The whole vocabulary is sorted to find the few tokens that top-k and top-p keep, and scattered back again."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

K, P = 50, 0.9  # the likeliest K; of these the fewest whose shares reach P
CLEAR = 0.01  # how far from P, so that no rounding decides, the two planted tokens stand


def inputs(draw: Draw, rows: int, vocabulary: int) -> Inputs:
    """Logits, and Gumbel noise: the token that is greatest with its noise is a sample of the distribution.

    Three tokens of each row get more noise than all others: most the best that top-k drops, then the best that top-p
    clearly drops, then the last that both clearly keep. Only who filters by both, in this order, finds the last.
    """
    logits = draw.normal(rows, vocabulary, std=2.0)
    noise = -(-draw.uniform(rows, vocabulary, low=1e-6, high=1.0).log().clamp(max=-1e-7)).log()
    ordered, order = logits.double().topk(K + 1)
    shares = ordered[:, :K].softmax(-1)
    before = shares.cumsum(-1) - shares  # what the likelier ones have
    inside, outside = (before < P - CLEAR).sum(-1) - 1, (before < P + CLEAR).sum(-1)
    ranks = torch.stack([inside, outside, torch.full_like(inside, K)], 1)
    planted = (logits + noise).amax(-1, keepdim=True) + torch.arange(1, 4, device=logits.device)
    tokens = order.gather(1, ranks)
    return {"logits": logits, "noise": noise.scatter(1, tokens, planted - logits.gather(1, tokens))}


def sampled(logits: Tensor, noise: Tensor) -> Tensor:
    """A token for each row, int64."""
    ordered, order = logits.sort(descending=True)
    shares = ordered.masked_fill(torch.arange(logits.shape[1], device=logits.device) >= K, -torch.inf).softmax(-1)
    dropped = (shares == 0) | (shares.cumsum(-1) - shares >= P)
    kept = torch.empty_like(logits).scatter_(1, order, ordered.masked_fill_(dropped, -torch.inf))
    return (kept + noise).argmax(-1)


def reference(logits: Tensor, noise: Tensor) -> Tensor:
    """A row at a time: walk down from the likeliest token until K are kept, or their shares reach P."""
    tokens = []
    for row, gumbel in zip(logits, noise):
        likeliest = row.argsort(descending=True)[:K]
        shares = row[likeliest].softmax(0).cumsum(0)
        kept = likeliest[: int((shares < P).sum()) + 1]
        tokens.append(kept[(row[kept] + gumbel[kept]).argmax()])
    return torch.stack(tokens)


workload = Workload(
    inputs=inputs,
    reference=reference,
    # Logits are read once; of the noise only the few that are kept.
    cost=lambda rows, vocabulary: Cost(
        read=4 * rows * vocabulary, write=8 * rows, launches=1, items=rows, unit="tokens"
    ),
    sizes={
        # The vocabulary of Llama 3. A large batch: the logits of 64 requests, 33 MB, would stay in the L2 cache.
        "bench": {"rows": 1024, "vocabulary": 128256},
        "cpu": {"rows": 8, "vocabulary": 32000},
        "test": {"rows": 3, "vocabulary": 17011},  # three tiles, the last one short
    },
    tolerance=0.0,  # ids
)


def prepare(logits: Tensor, noise: Tensor) -> Step:
    return lambda: sampled(logits, noise)
