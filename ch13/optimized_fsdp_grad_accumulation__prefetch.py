"""Each block asks for the next one's weights before its own products are launched, and not when they are due."""

from itertools import pairwise

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ch13.baseline_fsdp_grad_accumulation import model_of, train_step
from ch13.baseline_fsdp_grad_accumulation import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    model, mesh = model_of(weights), init_device_mesh(x.device.type, (dist.get_world_size(),))
    blocks = [fully_shard(block, mesh=mesh, reshard_after_forward=False) for block in model.parts]
    for block, following in pairwise(blocks):
        block.set_modules_to_forward_prefetch([following])
    fully_shard(model, mesh=mesh)
    return train_step(model, x, lambda index: None)
