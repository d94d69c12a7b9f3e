"""The codes are widened to bf16 for torch's attention: cuDNN's, or FlashAttention 2 where cuDNN does not take them."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ch18.baseline_fp8_attention import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


def prepare(q: Tensor, k: Tensor, v: Tensor, of_scores: Tensor, of_values: Tensor) -> Step:
    def step() -> Tensor:
        # a head's factor of scores is a power of two, so it may go into the queries
        scaled = q.to(torch.bfloat16).mul_(of_scores[:, None, None])
        batch = [x.unsqueeze(0) for x in (scaled, k.to(torch.bfloat16), v.mT.contiguous().to(torch.bfloat16))]
        with sdpa_kernel(BACKENDS, set_priority=True):
            out = scaled_dot_product_attention(*batch, scale=1.0)
        return out.squeeze(0).mul_(of_values[:, None, None])

    return step
