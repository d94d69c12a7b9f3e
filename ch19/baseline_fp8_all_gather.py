"""Sharded weights are gathered in bf16, and every rank then finds the amax of each and casts all of it to fp8."""

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448


def inputs(draw: Draw, width: int, hidden: int) -> Inputs:
    """This rank's rows of a block's four weights: those of attention, then a gated MLP's."""
    shapes = [(3 * width, width), (width, width), (2 * hidden, width), (width, hidden)]
    return {
        "shards": [draw.normal(rows // draw.ranks, n, std=n**-0.5, dtype=torch.bfloat16) for rows, n in shapes],
    }


def scales(amax: Tensor) -> Tensor:
    """The largest powers of two under which nothing is above 448: those that float32 has when its mantissa is 0."""
    return (LARGEST / amax.float()).view(torch.int32).bitwise_and(0x7F800000).view(torch.float32)


def codes(weight: Tensor, scale: Tensor) -> Tensor:
    """The bytes of weight * scale in e4m3. The product is exact, so only the cast rounds."""
    return (weight * scale).to(torch.float8_e4m3fn).view(torch.uint8)


def reference(rank: int, shards: list[list[Tensor]]) -> tuple[Tensor, ...]:
    weights = [torch.cat(of_ranks).float() for of_ranks in zip(*shards)]
    found = scales(torch.stack([weight.abs().max() for weight in weights]))
    return *map(codes, weights, found), found


def cost(width: int, hidden: int, ranks: int = 2) -> Cost:
    """The other ranks' weights come over the link, of two ranks half of all, a byte each."""
    weights = 4 * width * width + 3 * hidden * width
    mine = weights // ranks
    return Cost(nvlink_bytes=weights - mine, read=2 * mine, write=weights, items=weights, unit="weights")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={"bench": {"width": 4096, "hidden": 14336}, "test": {"width": 38, "hidden": 53}},
    tolerance=0.0,  # all that rounds is the cast, to nearest even
    gpus=2,
    clock="end_to_end",
)


def prepare(shards: list[Tensor]) -> Step:
    ranks = dist.get_world_size()
    gathered = [shard.new_empty(ranks * len(shard), shard.shape[1]) for shard in shards]

    def step() -> tuple[Tensor, ...]:
        under_way = [dist.all_gather_into_tensor(out, x, async_op=True) for out, x in zip(gathered, shards)]
        cast, found = [], []
        for work, weight in zip(under_way, gathered):
            work.wait()  # the weights behind it are still on their way
            found.append(scales(torch.linalg.vector_norm(weight, torch.inf)))
            cast.append(codes(weight, found[-1]))
        return *cast, torch.stack(found)

    return step
