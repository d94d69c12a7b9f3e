"""torch's own grouped product, CUTLASS with a tile scheduler on the device, between the same passes over the rows."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch17.baseline_moe_grouped_gemm import workload as workload
from common.models.expert_rows import added, spread
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)


@triton.jit
def pass_gates(gate_up, hidden, wide, WIDTH: tl.constexpr):
    """The SwiGLU of a row, in one pass: the product has no place for it."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    gate = tl.load(gate_up + row * 2 * wide + column, mask=column < wide).to(tl.float32)
    up = tl.load(gate_up + row * 2 * wide + wide + column, mask=column < wide).to(tl.float32)
    tl.store(hidden + row * wide + column, (gate * tl.sigmoid(gate) * up).to(hidden.dtype.element_ty), column < wide)


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Step:
    experts, width, wide = down.shape
    rows, hidden = (x.new_empty(ids.numel(), features) for features in (width, wide))
    out, block = torch.empty_like(x), triton.next_power_of_2(wide)
    each = torch.arange(experts, dtype=torch.int16, device=x.device)
    numbers = torch.arange(ids.numel(), device=x.device)
    places = torch.empty_like(numbers)

    def step() -> Tensor:
        ordered, order = ids.flatten().to(torch.int16).sort(stable=True)
        ends = torch.searchsorted(ordered, each, right=True, out_int32=True)
        places[order] = numbers
        both = torch._grouped_mm(spread(x, places, rows), gate_up.mT, offs=ends)
        pass_gates[(len(rows),)](both, hidden, wide, block)
        return added(torch._grouped_mm(hidden, down.mT, offs=ends), places, shares, out)

    return step
