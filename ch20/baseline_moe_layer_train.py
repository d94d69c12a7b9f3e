"""Autograd keeps each token's copy for every expert that it goes to, and everything that the experts make of it."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(memory_gib=40)  # weights and their gradients in float64, for the reference
Way = tuple[Tensor, Tensor, Tensor]  # choices ordered by expert, each choice's place there, each expert's end


def inputs(draw: Draw, tokens: int, experts: int, chosen: int, width: int, wide: int, dtype: str) -> Inputs:
    """Tokens, the experts each goes to and their shares, the experts' weights, and the slope at the layer's output."""
    element = getattr(torch, dtype)
    best, ids = (draw.normal(tokens, experts) + draw.normal(experts, std=0.5)).topk(chosen, dim=1)
    return {
        "x": draw.normal(tokens, width, dtype=element),
        "ids": ids,
        "shares": best.softmax(dim=1).to(element),
        "gate_up": draw.normal(experts, 2 * wide, width, std=width**-0.5, dtype=element),
        "down": draw.normal(experts, width, wide, std=wide**-0.5, dtype=element),
        "slope": draw.normal(tokens, width, dtype=element),
    }


def swiglu(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, -1)
    return F.silu(gate) * up


def reference(
    x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, slope: Tensor
) -> tuple[Tensor, ...]:
    """The output, and the gradients of tokens, shares and both weights, one expert at a time."""
    out, to_x, to_shares, to_gate_up, to_down = (torch.zeros_like(t) for t in (x, x, shares, gate_up, down))
    for expert in range(len(down)):
        token, slot = torch.where(ids == expert)
        leaves = [t.detach().requires_grad_() for t in (x[token], shares[token, slot], gate_up[expert], down[expert])]
        part = swiglu(leaves[0] @ leaves[2].T) @ leaves[3].T * leaves[1][:, None]
        of_rows, to_shares[token, slot], to_gate_up[expert], to_down[expert] = torch.autograd.grad(
            part, leaves, slope[token]
        )
        out.index_add_(0, token, part.detach())
        to_x.index_add_(0, token, of_rows)
    return out, to_x, to_shares, to_gate_up, to_down


def cost(tokens: int, experts: int, chosen: int, width: int, wide: int, dtype: str) -> Cost:
    """Three products of each expert, forward and twice back; weights, tokens and slopes are read, gradients written."""
    size, weights = getattr(torch, dtype).itemsize, 3 * experts * wide * width
    return Cost(
        flops=6 * tokens * chosen * 3 * wide * width,
        dtype="bf16",
        read=size * (weights + 2 * tokens * width) + 8 * tokens * chosen,
        write=size * (weights + 2 * tokens * width),
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # A layer of OLMoE-1B-7B: 131,072 copies of tokens, 0.5 GB, and 400 million weights
        "bench": {"tokens": 16384, "experts": 64, "chosen": 8, "width": 2048, "wide": 1024, "dtype": "bfloat16"},
        "test": {"tokens": 137, "experts": 5, "chosen": 2, "width": 40, "wide": 24, "dtype": "bfloat16"},
    },
    tolerance=3e-2,  # bf16 rounds what goes from product to product, five times on the way back
    goal="memory",
)


def way(ids: Tensor, experts: int) -> Way:
    ordered, order = ids.flatten().sort(stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=ids.device)
    each = torch.arange(experts, device=ids.device)
    return order, places, torch.searchsorted(ordered, each, right=True, out_int32=True)


def layer(x: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor) -> Tensor:
    order, _, ends = way(ids, len(down))
    token = order // ids.shape[1]
    hidden = swiglu(torch._grouped_mm(x.index_select(0, token), gate_up.mT, offs=ends))
    rows = torch._grouped_mm(hidden, down.mT, offs=ends) * shares.flatten().index_select(0, order)[:, None]
    return torch.zeros_like(x).index_add(0, token, rows)


def train_step(run: Callable[..., Tensor], slope: Tensor, ids: Tensor, *weights: Tensor) -> Step:
    leaves = [tensor.detach().requires_grad_() for tensor in weights]  # the same memory

    def step() -> tuple[Tensor, ...]:
        out = run(*leaves, ids)
        return out.detach(), *torch.autograd.grad(out, leaves, slope)

    return step


def prepare(x: Tensor, ids: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, slope: Tensor) -> Step:
    return train_step(layer, slope, ids, x, shares, gate_up, down)
