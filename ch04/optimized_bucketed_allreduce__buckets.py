"""Gradients are views of flat buckets of 25 MiB: one collective carries forty-eight of them, and none is copied."""

import torch
import torch.distributed as dist
from torch import Tensor

from ch04.baseline_bucketed_allreduce import workload as workload
from common.python.workload import Step

BUCKET_BYTES = 25 << 20  # as DistributedDataParallel has it


def filled(gradients: list[Tensor]) -> list[list[Tensor]]:
    """The gradients in order, cut into lists of at most a bucket each."""
    buckets: list[list[Tensor]] = [[]]
    for gradient in gradients:
        if sum(held.nbytes for held in buckets[-1]) + gradient.nbytes > BUCKET_BYTES:
            buckets.append([])
        buckets[-1].append(gradient)
    return buckets


def flattened(gradients: list[Tensor]) -> Tensor:
    """One buffer with all their numbers, of which each becomes a view: what writes a gradient fills the bucket."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
        gradient.data = part.view_as(gradient)
    return flat


def prepare(gradients: list[Tensor]) -> Step:
    ranks = dist.get_world_size()
    buckets = [flattened(held) for held in filled(gradients)]

    def step() -> tuple[Tensor, ...]:
        for bucket in buckets:
            dist.all_reduce(bucket)
            bucket.div_(ranks)
        return tuple(gradients)

    return step
