"""torch's own grouped product, which CUTLASS tiles on the device, between a sort and passes over the rows."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch17.baseline_moe_gather_gemm import workload as workload
from common.models.expert_rows import added, spread
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    rows, out = x.new_empty(ids.numel(), x.shape[1]), torch.empty_like(x)
    each = torch.arange(len(down), dtype=torch.int16, device=x.device)
    numbers = torch.arange(ids.numel(), device=x.device)
    places = torch.empty_like(numbers)

    def step() -> Tensor:
        ordered, order = ids.flatten().to(torch.int16).sort(stable=True)
        ends = torch.searchsorted(ordered, each, right=True, out_int32=True)
        places[order] = numbers
        gate, up = torch._grouped_mm(spread(x, places, rows), gate_up.mT, offs=ends).chunk(2, dim=-1)
        return added(torch._grouped_mm(F.silu(gate) * up, down.mT, offs=ends), places, shares, out)

    return step
