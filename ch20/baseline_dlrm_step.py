"""Each table has its own lookup, one launch after the other, and what they give is copied together afterwards."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Step, Workload

DENSE, BOTTOM, TOP = 13, (512, 256), (1024, 512, 1)  # numbers of a sample; widths of the two networks' layers


def layers(tables: int, width: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Shapes [out, in] of the matrices before and after the interaction of `tables` + 1 vectors."""
    bottom, top = (DENSE, *BOTTOM, width), (width + tables * (tables + 1) // 2, *TOP)
    return list(zip(bottom[1:], bottom)), list(zip(top[1:], top))


def inputs(draw: Draw, tables: int, rows: int, width: int, batch: int, bag: int, dtype: str) -> Inputs:
    """`ids`, of each table [batch, bag], name no row of a table twice: nothing that was looked up is met again."""
    element = getattr(torch, dtype)
    nets = [[draw.normal(*s, std=(2 / s[1]) ** 0.5, dtype=element) for s in net] for net in layers(tables, width)]
    return {
        "embeddings": draw.normal(tables, rows, width, std=bag**-0.5, dtype=element),
        "ids": torch.stack([draw.permutation(rows)[: batch * bag].view(batch, bag) for _ in range(tables)]),
        "dense": draw.normal(batch, DENSE, dtype=element),
        "bottom": nets[0],
        "top": nets[1],
    }


def perceptron(x: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights[:-1]:
        x = F.linear(x, weight).relu_()
    return F.linear(x, weights[-1])


def interact(features: Tensor, top: list[Tensor], below: Tensor) -> Tensor:
    """Scores [batch, 1], of features [batch, tables + 1, width] and the products of any two, which `below` picks."""
    pairs = torch.bmm(features, features.mT).flatten(1).index_select(1, below) / features.shape[2] ** 0.5
    return perceptron(torch.cat([features[:, 0], pairs], 1), top)


def below_diagonal(count: int, like: Tensor) -> Tensor:
    row, column = torch.tril_indices(count, count, -1, device=like.device)
    return row * count + column


def reference(embeddings: Tensor, ids: Tensor, dense: Tensor, bottom: list[Tensor], top: list[Tensor]) -> Tensor:
    sums = [table[of.to(table.device)].double().sum(1) for table, of in zip(embeddings, ids)]
    features = torch.stack([perceptron(dense, bottom), *sums], 1)
    return interact(features, top, below_diagonal(features.shape[1], ids))


def cost(tables: int, rows: int, width: int, batch: int, bag: int, dtype: str) -> Cost:
    numbers = sum(out * size for net in layers(tables, width) for out, size in net)
    looked_up, element = tables * batch * bag, getattr(torch, dtype).itemsize
    return Cost(
        read=looked_up * (width * element + 8) + element * (numbers + batch * DENSE),
        write=element * batch,
        flops=2 * batch * (numbers + tables * (tables + 1) // 2 * width),
        dtype="bf16",
        items=batch,
        unit="samples",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 1.7 million rows of 256 bytes are looked up, 436 MB, in 26 tables of 200,000 rows
        "bench": {"tables": 26, "rows": 200_000, "width": 128, "batch": 4096, "bag": 16, "dtype": "bfloat16"},
        # float16, because Triton's interpreter has no bf16 arithmetic to compare with
        "test": {"tables": 5, "rows": 97, "width": 20, "batch": 23, "bag": 3, "dtype": "float16"},
    },
    tolerance=2e-2,  # bf16 rounds sums, products and seven layers
    frozen=("embeddings",),
    as_drawn=("embeddings",),
)


def prepare(embeddings: Tensor, ids: Tensor, dense: Tensor, bottom: list[Tensor], top: list[Tensor]) -> Step:
    below = below_diagonal(len(embeddings) + 1, ids)

    @torch.inference_mode()
    def step() -> Tensor:
        sums = [F.embedding_bag(of, table, mode="sum") for table, of in zip(embeddings, ids)]
        features = torch.cat([perceptron(dense, bottom), *sums], 1).unflatten(1, (len(sums) + 1, -1))
        return interact(features, top, below)

    return step
