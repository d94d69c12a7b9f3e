"""cuDNN's attention with the dense mask of the baseline, and no other backend allowed: it computes every score."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ch18.baseline_flex_document_mask import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    tokens = len(document)
    mask = torch.empty(tokens, tokens, dtype=torch.bool, device=q.device)

    def step() -> Tensor:
        torch.eq(document[:, None], document, out=mask).tril_()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return step
