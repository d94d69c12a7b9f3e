"""The same attention, with torch's own way to its tiles: the mask is evaluated for every pair of tokens, and summed."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ch18.baseline_flex_document_mask import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    tokens = len(document)
    build, attend = (torch.compile(f, dynamic=False) for f in (create_block_mask, flex_attention))

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (document[query] == document[key]) & (key <= query)

    def step() -> Tensor:
        return attend(q, k, v, block_mask=build(visible, None, None, tokens, tokens, device=document.device))

    return step
