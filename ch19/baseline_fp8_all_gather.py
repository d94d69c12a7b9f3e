"""Shards of weights are gathered in bf16, and each rank then casts the whole of them to fp8 for its products."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, matrices: int, numbers: int) -> Inputs:
    """This rank's shard of each matrix; a matrix has its own size of weights."""
    size = torch.exp2(draw.shared.integers(matrices, 1, low=-9, high=-4).float())
    return {"shard": (draw.normal(matrices, numbers) * size).bfloat16()}


def scale_of(amax: Tensor) -> Tensor:
    """The greatest power of two with which a magnitude stays within e4m3's 448."""
    return torch.exp2(torch.floor(torch.log2(448 / amax)))


def reference(rank: int, shard: list[Tensor]) -> tuple[Tensor, Tensor]:
    """All ranks' codes [ranks, matrices, numbers] as bytes, and the scales [matrices] they were multiplied with."""
    whole = torch.stack(shard)
    scale = scale_of(whole.abs().amax((0, 2)))
    return (whole * scale[:, None]).to(torch.float8_e4m3fn).view(torch.uint8), scale


workload = Workload(
    inputs=inputs,
    reference=reference,
    # Of two ranks each receives the other's codes, a byte a weight; of more ranks, more.
    cost=lambda matrices, numbers: Cost(
        nvlink_bytes=matrices * numbers,
        read=2 * matrices * numbers,
        write=2 * matrices * numbers,
        items=2 * matrices * numbers,
        unit="weights",
    ),
    sizes={"bench": {"matrices": 8, "numbers": 1 << 24}, "test": {"matrices": 3, "numbers": 37}},
    tolerance=0.0,  # powers of two, and one rounding
    gpus=2,
    clock="end_to_end",
)


def largest(x: Tensor) -> Tensor:
    """Each matrix's largest magnitude, float32, of [..., matrices, numbers]."""
    return torch.linalg.vector_norm(x, torch.inf, dim=-1).float()


def cast(x: Tensor, scale: Tensor, out: Tensor) -> None:
    out.copy_(x * scale[:, None].to(x.dtype))  # a power of two: nothing is rounded before the cast


def prepare(shard: Tensor) -> Step:
    whole = shard.new_empty(dist.get_world_size(), *shard.shape)
    codes = torch.empty_like(whole, dtype=torch.float8_e4m3fn)

    def step() -> tuple[Tensor, Tensor]:
        dist.all_gather_into_tensor(whole.flatten(0, 1), shard)
        scale = scale_of(largest(whole).amax(0))
        cast(whole, scale, codes)
        return codes.view(torch.uint8), scale

    return step
