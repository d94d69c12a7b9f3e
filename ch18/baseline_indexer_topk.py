"""Every head's products are written, cut at zero, read to be summed over the heads, and topk reads the sums again."""

import torch
from torch import Tensor

from common.python.workload import AnyOrder, Cost, Draw, Inputs, Step, Workload

TOP = 2048  # keys that attention may see
CLEAR = 1e-5  # of a query's scores (rms): how far its last key is above the next, so that no rounding decides


def scores_of(q: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
    """In float64: the sum over heads of weight x relu(query x key)."""
    total, wide = keys.new_zeros(len(q), len(keys), dtype=torch.float64), keys.double()
    for head in range(q.shape[1]):
        total += (q[:, head].double() @ wide.T).relu_().mul_(weights[:, head, None])
    return total


def inputs(draw: Draw, rows: int, keys: int, heads: int, width: int, dtype: str) -> Inputs:
    """Queries whose choice is not clear, one in twenty, are copies of one whose choice is."""
    element = getattr(torch, dtype)
    q, k = (draw.normal(*shape, width, dtype=element) for shape in ((rows, heads), (keys,)))
    weights = draw.uniform(rows, heads)
    scores = scores_of(q, weights, k)
    best = scores.topk(TOP + 1).values
    margin = (best[:, -2] - best[:, -1]) / scores.square_().mean(1).sqrt()
    source = torch.where(margin > CLEAR, torch.arange(rows, device=margin.device), margin.argmax())
    return {"q": q[source], "weights": weights[source], "k": k}


def reference(q: Tensor, weights: Tensor, k: Tensor) -> AnyOrder:
    """The keys of all queries: the number of the query x the number of keys, plus that of the key."""
    best = scores_of(q, weights, k).topk(TOP).indices
    return AnyOrder((best + torch.arange(len(q), device=q.device)[:, None] * len(k)).flatten())


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda rows, keys, heads, width, dtype: Cost(
        flops=2 * rows * keys * heads * width,
        dtype="bf16",
        read=2 * width * (keys + rows * heads) + 4 * rows * heads,
        write=8 * rows * TOP,
        items=rows,
        unit="queries",
    ),
    sizes={
        "bench": {"rows": 512, "keys": 131072, "heads": 16, "width": 128, "dtype": "bfloat16"},
        "test": {"rows": 3, "keys": 3001, "heads": 4, "width": 32, "dtype": "float32"},
    },
    tolerance=0.0,  # ids
    as_drawn=("q", "k"),
)


def prepare(q: Tensor, weights: Tensor, k: Tensor) -> Step:
    (rows, heads, _), keys = q.shape, len(k)
    products = k.new_empty(rows * heads, keys, dtype=torch.float32)
    start = torch.arange(rows, device=k.device)[:, None] * keys

    def step() -> AnyOrder:
        if k.dtype == torch.float32:
            torch.mm(q.flatten(0, 1), k.T, out=products)
        else:  # scores that are rounded to bf16 would be equal in hundreds
            torch.mm(q.flatten(0, 1), k.T, out_dtype=torch.float32, out=products)
        scores = torch.bmm(weights[:, None], products.relu_().view(rows, heads, keys))[:, 0]
        return AnyOrder((scores.topk(TOP, sorted=False).indices + start).flatten())

    return step
