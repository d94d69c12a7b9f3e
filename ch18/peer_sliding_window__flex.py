"""FlexAttention: the band as a function, compiled into the kernel, and the list of tiles that it touches."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ch18.baseline_sliding_window import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(q: Tensor, k: Tensor, v: Tensor, window: int) -> Step:
    def band(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return (column <= row) & (row - column < window)

    tokens = q.shape[1]
    mask = create_block_mask(band, None, None, tokens, tokens, device=q.device, _compile=True)
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(q[None], k[None], v[None], block_mask=mask)[0]

    return step
