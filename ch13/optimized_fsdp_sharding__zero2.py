"""Gradients and moments are sharded; gathered weights stay from forward to backward, which saves the second gather."""

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ch13.baseline_fsdp_sharding import Model, share, train_step
from ch13.baseline_fsdp_sharding import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, target: Tensor, weights: list[Tensor]) -> Step:
    model, rank, ranks = Model([weight.clone() for weight in weights]), dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(x.device.type, (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    kept = [share(weight, rank, ranks) for weight in weights]
    return train_step(model, lambda: model(x, target), kept, DTensor.to_local)
