"""A nested tensor in jagged layout: PyTorch keeps the tokens packed, with offsets, and pads the answer at the end."""

import torch
from torch import Tensor

from ch01.baseline_padding_goodput import mlp
from ch01.baseline_padding_goodput import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, lengths: Tensor, up: Tensor, down: Tensor) -> Step:
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=x.device)
    longest = x.shape[1]

    def step() -> Tensor:
        offsets[1:].copy_(lengths.cumsum(0), non_blocking=True)
        packed = torch.cat([request[:count] for request, count in zip(x, lengths.tolist())])
        nested = torch.nested.nested_tensor_from_jagged(packed, offsets, min_seqlen=1, max_seqlen=longest)
        return torch.nested.to_padded_tensor(mlp(nested, up, down), 0.0)

    return step
