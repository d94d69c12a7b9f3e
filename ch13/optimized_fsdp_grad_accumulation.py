"""Blocks are gathered once and kept whole until the last micro-batch, which alone has its gradients reduced."""

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ch13.baseline_fsdp_grad_accumulation import MICROBATCHES, model_of, train_step
from ch13.baseline_fsdp_grad_accumulation import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    model, mesh = model_of(weights), init_device_mesh(x.device.type, (dist.get_world_size(),))
    for block in model.parts:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    sharded = fully_shard(model, mesh=mesh)

    def at_micro_batch(index: int) -> None:
        last = index == MICROBATCHES - 1
        sharded.set_requires_gradient_sync(last)  # until then each rank adds up whole gradients of its own
        sharded.set_reshard_after_backward(last)

    return train_step(model, x, at_micro_batch)
