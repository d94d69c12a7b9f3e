"""FlashAttention 2 as torch ships it, told where each document begins: each is a causal problem of its own."""

import torch
from torch import Tensor

from ch18.baseline_flex_document_mask import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    tokens, number = len(document), torch.arange(int(document.max()) + 2, device=document.device)
    packed = [x.squeeze(0).transpose(0, 1) for x in (q, k, v)]  # it wants tokens before heads; strides are free
    attend = torch.ops.aten._flash_attention_forward.default  # varlen_attn in torch.nn.attention changes by release

    def step() -> Tensor:
        begins = torch.searchsorted(document, number, out_int32=True)  # and where the last one ends
        longest = tokens  # how long the longest document is the host does not know, and must not wait to learn
        out = attend(*packed, begins, begins, longest, longest, 0.0, True, False)[0]
        return out.transpose(0, 1).unsqueeze(0)

    return step
