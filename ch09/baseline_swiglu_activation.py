"""SwiGLU's backward by autograd: the activation is computed again, its intermediate stored, in five kernels."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, rows: int, columns: int) -> Inputs:
    return {name: draw.normal(rows, columns, dtype=torch.bfloat16) for name in ("gate", "up", "slope")}


def reference(gate: Tensor, up: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    sigmoid = gate.sigmoid()
    active = gate * sigmoid
    return active * up, slope * up * (sigmoid + active * (1 - sigmoid)), slope * active


# The middle of an MLP's backward pass, where the activation was not kept. The down projection's weight gradient needs
# it again, and gate and up need their gradients: three tensors in, three out. Nothing links one element to another.
workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda rows, columns: Cost(read=2 * 3 * rows * columns, write=2 * 3 * rows * columns),
    sizes={
        "bench": {"rows": 4096, "columns": 14336},  # the MLP of Llama 3 8B: 117 MB a tensor
        "cpu": {"rows": 256, "columns": 2048},
        "test": {"rows": 7, "columns": 1003},
    },
    # Up to three roundings to bf16 make 4e-3. The largest of 59 million products is 30 times the rms, and its rounding
    # must stay within ten times this.
    tolerance=0.03,
)


def prepare(gate: Tensor, up: Tensor, slope: Tensor) -> Step:
    leaves = [gate.detach().requires_grad_(), up.detach().requires_grad_()]

    def step() -> tuple[Tensor, ...]:
        out = silu(leaves[0]) * leaves[1]
        return out.detach(), *torch.autograd.grad(out, leaves, slope)

    return step
