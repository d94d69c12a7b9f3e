"""All adapters padded with zeros to the largest rank, once: two batched products, whose grids fill the GPU."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ch11.baseline_concurrent_lora_gemms import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, down: list[Tensor], up: list[Tensor]) -> Step:
    rank = max(len(b) for b in up)
    first = torch.stack([pad(a, (0, rank - a.shape[1])) for a in down])
    second = torch.stack([pad(b, (0, 0, 0, rank - len(b))) for b in up])
    return lambda: torch.bmm(torch.bmm(x, first), second)
