"""Slower on two H200s: each layer is a unit, whose gather can run beside products, but the host pays for each."""

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ch13.baseline_fsdp_grad_accumulation import model_of, train_step
from ch13.baseline_fsdp_grad_accumulation import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    model, mesh = model_of(weights), init_device_mesh(x.device.type, (dist.get_world_size(),))
    for block in model.parts:
        for layer in block.parts:
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    return train_step(model, x, lambda index: None)
