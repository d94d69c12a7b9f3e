"""A product writes the score of every vector with every codeword to memory; a second kernel looks for the highest."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, vectors: int, codes: int, width: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    codebook = draw.normal(codes, width, dtype=element)
    # Each vector lies far nearer to one codeword than to any other, so that rounding decides nothing.
    nearest = draw.integers(vectors, high=codes)
    return {"x": codebook[nearest] + draw.normal(vectors, width, std=0.25, dtype=element), "codebook": codebook}


def reference(x: Tensor, codebook: Tensor) -> Tensor:
    half = codebook.square().sum(dim=1) / 2
    return torch.cat([(half - part @ codebook.T).argmin(dim=1) for part in x.split(4096)])  # all at once are 9 GB


def cost(vectors: int, codes: int, width: int, dtype: str) -> Cost:
    read = 2 * (vectors + codes) * width
    return Cost(
        read=read, write=8 * vectors, flops=2 * vectors * codes * width, dtype="bf16", items=vectors, unit="vectors"
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 128 images of 32 x 32 vectors; the scores are 2.1 GB.
        "bench": {"vectors": 131072, "codes": 8192, "width": 256, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; TMA copies rows that begin at multiples of 16 bytes
        "test": {"vectors": 203, "codes": 331, "width": 40, "dtype": "float16"},
    },
    tolerance=0.0,  # numbers of codewords
    rungs="triton turns seeded_sums",
)


def prepare(x: Tensor, codebook: Tensor) -> Step:
    scores = x.new_empty(len(x), len(codebook))

    def step() -> Tensor:
        # Half of the squared distance, less the part that is the same for all codewords, and negated.
        away = torch.linalg.vector_norm(codebook, dim=1, dtype=torch.float32).square_().div_(-2).to(x.dtype)
        return torch.addmm(away, x, codebook.T, out=scores).argmax(dim=1)

    return step
