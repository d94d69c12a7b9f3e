"""FlashAttention 3, told where each document begins: a fixed grid takes tiles from a counter, a block an SM."""

import torch
from flash_attn_interface import flash_attn_varlen_func
from torch import Tensor

from ch18.baseline_flex_document_mask import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["flash_attn_interface"], sm=90)


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    tokens, number = len(document), torch.arange(int(document.max()) + 2, device=document.device)
    packed = [x.squeeze(0).transpose(0, 1) for x in (q, k, v)]  # it wants tokens before heads; strides are free

    def step() -> Tensor:
        begins = torch.searchsorted(document, number, out_int32=True)  # and where the last one ends
        # The host does not know the longest document, so it gives a bound. That launches no empty tile: a small
        # kernel counts each document's tiles on the device, and the large one's blocks take only those.
        out = flash_attn_varlen_func(*packed, begins, begins, tokens, tokens, causal=True)
        return (out[0] if isinstance(out, tuple) else out).transpose(0, 1).unsqueeze(0)

    return step
