"""torch's own grouped product, CUTLASS with a tile scheduler on the device, over the same sorted rows."""

import torch
from torch import Tensor

from ch17.baseline_moe_grouped_gemm import swiglu
from ch17.baseline_moe_grouped_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    tokens, chosen = ids.shape
    inverse = torch.empty(tokens * chosen, dtype=torch.int64, device=x.device)
    places = torch.arange(tokens * chosen, device=x.device)
    each = torch.arange(len(gate_up), device=x.device)

    def step() -> Tensor:
        ordered, order = ids.flatten().sort(stable=True)
        ends = torch.searchsorted(ordered, each, right=True, out_int32=True)
        inverse[order] = places
        hidden = swiglu(torch._grouped_mm(x[order // chosen], gate_up.mT, offs=ends))
        answers = torch._grouped_mm(hidden, down.mT, offs=ends)[inverse].view(tokens, chosen, -1)
        return torch.bmm(shares[:, None], answers).squeeze(1)

    return step
