"""torch.compile: a Triton kernel for the product with the row's scale and the rounding to bf16, tuned by trying."""

import torch
from torch import Tensor

from ch08.baseline_bytes_in_flight import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    return (codes * scales[:, None]).to(torch.bfloat16)


def prepare(codes: Tensor, scales: Tensor) -> Step:
    compiled = torch.compile(dequantize, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(codes, scales)

    return step
