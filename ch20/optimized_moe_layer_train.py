"""Only the experts' first products are kept for the backward pass, which gathers the tokens' copies again."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch20.baseline_moe_layer_train import train_step, way
from ch20.baseline_moe_layer_train import workload as workload
from common.models.expert_rows import added
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=40)


@triton.jit
def pass_gates(both, hidden, wide, WIDTH: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    gate = tl.load(both + row * 2 * wide + column, mask=column < wide, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * wide + wide + column, mask=column < wide, other=0.0).to(tl.float32)
    tl.store(hidden + row * wide + column, (gate * tl.sigmoid(gate) * up).to(hidden.dtype.element_ty), column < wide)


@triton.jit
def pass_gates_back(both, slopes, shares, order, to_shares, wide, WIDTH: tl.constexpr):
    """`both` becomes its own gradient, and `slopes`, those of an output with share 1, the hidden numbers by share."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    live, at, choice = column < wide, row * 2 * wide + column, tl.load(order + row)
    gate = tl.load(both + at, mask=live, other=0.0).to(tl.float32)
    up = tl.load(both + at + wide, mask=live, other=0.0).to(tl.float32)
    slope = tl.load(slopes + row * wide + column, mask=live, other=0.0).to(tl.float32)
    share, open = tl.load(shares + choice).to(tl.float32), tl.sigmoid(gate)
    silu = gate * open
    tl.store(to_shares + choice, tl.sum(slope * silu * up, axis=0).to(to_shares.dtype.element_ty))
    tl.store(slopes + row * wide + column, (share * silu * up).to(slopes.dtype.element_ty), mask=live)
    to_gate = share * slope * up * (open + silu * (1 - open))
    tl.store(both + at, to_gate.to(both.dtype.element_ty), mask=live)
    tl.store(both + at + wide, (share * slope * silu).to(both.dtype.element_ty), mask=live)


class Lean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor) -> Tensor:
        wide, (order, places, ends) = down.shape[2], way(ids, len(down))
        both = torch._grouped_mm(x[order // ids.shape[1]], gate_up.mT, offs=ends)
        hidden = both.new_empty(len(both), wide)
        pass_gates[(len(both),)](both, hidden, wide, triton.next_power_of_2(wide))
        ctx.save_for_backward(x, shares, gate_up, down, both, order, places, ends)
        return added(torch._grouped_mm(hidden, down.mT, offs=ends), places, shares, torch.empty_like(x))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, shares, gate_up, down, both, order, places, ends = ctx.saved_tensors
        token, to_shares, wide = order // shares.shape[1], torch.empty_like(shares), down.shape[2]
        slopes = slope[token]
        hidden = torch._grouped_mm(slopes, down, offs=ends)
        pass_gates_back[(len(both),)](both, hidden, shares, order, to_shares, wide, triton.next_power_of_2(wide))
        to_down = torch._grouped_mm(slopes.T, hidden, offs=ends)
        del slopes, hidden
        to_gate_up = torch._grouped_mm(both.T, x[token], offs=ends)
        rows = torch._grouped_mm(both, gate_up, offs=ends)
        to_x = added(rows, places, torch.ones_like(shares), torch.empty_like(x))
        return to_x, to_shares, to_gate_up, to_down, None


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, slope: Tensor) -> Step:
    return train_step(Lean.apply, slope, ids, x, shares, gate_up, down)
