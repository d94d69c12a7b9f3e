"""A dense mask, token by token: whose document, and not later. Attention computes every score and throws most away."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.models.grouped_query import attended, live_pairs
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def lengths(tokens: int, documents: int) -> list[int]:
    """A mix of short and long: document i has i + 1 shares of the tokens, and the last has what is left over."""
    shares = documents * (documents + 1) // 2
    most = [tokens * (i + 1) // shares for i in range(documents - 1)]
    return [*most, tokens - sum(most)]


def inputs(draw: Draw, heads: int, tokens: int, width: int, documents: int) -> Inputs:
    order = draw.permutation(documents)
    shuffled = torch.tensor(lengths(tokens, documents), device=draw.device)[order]
    number = torch.arange(documents, device=draw.device)
    shape = 1, heads, tokens, width
    return {
        "q": draw.normal(*shape, dtype=torch.bfloat16),
        "k": draw.normal(*shape, dtype=torch.bfloat16),
        "v": draw.uniform(*shape, low=-1, dtype=torch.bfloat16),  # a first token's output is its value: no outliers
        "document": number.repeat_interleave(shuffled, output_size=tokens),  # of each token, in ascending order
    }


def reference(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    out, sizes = torch.empty_like(q), document.bincount().tolist()
    for a, b, c, to in zip(*(x[0].split(sizes, dim=1) for x in (q, k, v, out))):  # one document at a time
        to.copy_(attended(a, b, c, torch.ones(a.shape[1], a.shape[1], dtype=torch.bool, device=a.device).tril_()))
    return out


def cost(heads: int, tokens: int, width: int, documents: int) -> Cost:
    pairs = live_pairs(lengths(tokens, documents))
    moved = {"read": 2 * 3 * heads * tokens * width + 8 * tokens, "write": 2 * heads * tokens * width}
    return Cost(flops=4 * heads * width * pairs, dtype="bf16", **moved, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"heads": 16, "tokens": 32768, "width": 128, "documents": 7},  # 18% of the causal pairs are live
        "test": {"heads": 2, "tokens": 331, "width": 32, "documents": 5},
    },
    # A document's first tokens see few keys, so their outputs are ten times the rms; rounding those to bf16 is what
    # one element may be off by, ten times the tolerance.
    tolerance=3e-2,
    rungs="dense_build flex long_first",
)


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    tokens = len(document)
    mask = torch.empty(tokens, tokens, dtype=torch.bool, device=q.device)

    def step() -> Tensor:
        torch.eq(document[:, None], document, out=mask).tril_()
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return step
