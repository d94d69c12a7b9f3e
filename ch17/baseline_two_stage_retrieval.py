"""All bits of all vectors: a product writes every query's score with every vector, and topk reads the scores again."""

import torch
from torch import Tensor

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(memory_gib=40)
TOP = 32
SCALE = 32  # codes are multiples of 1/32 up to 4, which suits numbers of unit variance


def coded(values: Tensor) -> Tensor:
    return (values * SCALE).round_().clamp_(-127, 127).to(torch.int8)


def inputs(draw: Draw, queries: int, vectors: int, width: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    table = draw.normal(vectors, width, dtype=element)
    return {"queries": draw.normal(queries, width, dtype=element), "table": table, "codes": coded(table)}


def reference(queries: Tensor, table: Tensor, codes: Tensor) -> Tensor:
    best = [(queries @ part.to(queries.dtype).T).topk(min(TOP, len(part))).values for part in table.split(1 << 18)]
    return torch.cat(best, dim=1).topk(TOP).values


def cost(queries: int, vectors: int, width: int, dtype: str) -> Cost:
    # One code of each number. To skip a part of the vectors' codes saves little: the part differs for each query.
    read, flops = vectors * width + 2 * queries * width, 2 * queries * vectors * width
    return Cost(read=read, write=4 * queries * TOP, flops=flops, dtype="int8", items=queries, unit="queries")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 6.4 GB of vectors, and their codes, 3.2 GB
        "bench": {"queries": 32, "vectors": 1 << 22, "width": 768, "dtype": "bfloat16"},
        "test": {"queries": 3, "vectors": 2003, "width": 45, "dtype": "float32"},
    },
    # Scores in order, and not ids: where two scores are equal but for rounding, either id is right. One vector that
    # is missed moves a score by 2e-3 or so.
    tolerance=1e-5,
    as_drawn=("table", "codes"),
)


def prepare(queries: Tensor, table: Tensor, codes: Tensor) -> Step:
    scores = queries.new_empty(len(queries), len(table), dtype=torch.float32)

    def step() -> Tensor:
        if table.dtype == torch.float32:
            torch.mm(queries, table.T, out=scores)
        else:  # sums in float32 must not be rounded to bf16: many vectors would have the same score
            torch.mm(queries, table.T, out_dtype=torch.float32, out=scores)
        return scores.topk(TOP).values

    return step
