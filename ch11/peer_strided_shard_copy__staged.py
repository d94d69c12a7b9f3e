"""torch's threads gather the shard into a page-locked buffer, kept for the purpose, from which it is sent by DMA."""

import torch
from torch import Tensor

from ch11.baseline_strided_shard_copy import shard_of
from ch11.baseline_strided_shard_copy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(weights: Tensor, shard: Tensor, held: Tensor) -> Step:
    staged, sent = torch.empty_like(held, device=weights.device, pin_memory=True), torch.cuda.Event()

    def step() -> Tensor:
        sent.synchronize()  # the shard before has left the buffer
        held.copy_(staged.copy_(shard_of(weights, shard)), non_blocking=True)
        sent.record()
        return held

    return step
