"""Chunks of tokens go through one compiled kernel, which reads bf16 logits and writes log-probabilities alone."""

import torch
from torch import Tensor

from ch13.baseline_selected_logprob import log_probabilities
from ch13.baseline_selected_logprob import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)
CHUNK = 256  # tokens, whose logits are 78 MB: with 512 twice as much is held
ONE_KERNEL = {"split_reductions": False}  # otherwise rows, being few, are split among blocks, which read all twice


def prepare(hidden: Tensor, head: Tensor, chosen: Tensor) -> Step:
    compiled = torch.compile(log_probabilities, dynamic=False, fullgraph=True, options=ONE_KERNEL)
    chunks = list(zip(hidden.split(CHUNK), chosen.split(CHUNK)))

    def step() -> Tensor:
        return torch.cat([compiled(states, head, words) for states, words in chunks])

    return step
