"""torch.compile on the whole: softmax and choice become one kernel, which reads bf16 logits and writes no others."""

import torch
from torch import Tensor

from ch13.baseline_selected_logprob import log_probabilities
from ch13.baseline_selected_logprob import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(hidden: Tensor, head: Tensor, chosen: Tensor) -> Step:
    compiled = torch.compile(log_probabilities, dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(hidden, head, chosen)

    return step
