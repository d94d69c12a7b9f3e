"""A graph of norm, product, activation, product for each block: a kernel begins when the one before it has drained."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.graphs import replayable
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
EPSILON = 1e-5


def inputs(draw: Draw, layers: int, width: int, inner: int) -> Inputs:
    return {
        "x": draw.normal(width),
        "gains": draw.uniform(layers, width, low=0.5, high=1.5, dtype=torch.bfloat16),
        "up": draw.normal(layers, 2 * inner, width, std=width**-0.5, dtype=torch.bfloat16),  # gates, then values
        "down": draw.normal(layers, width, inner, std=inner**-0.5, dtype=torch.bfloat16),
    }


def reference(x: Tensor, gains: Tensor, up: Tensor, down: Tensor) -> Tensor:
    for gain, first, second in zip(gains, up, down):
        normed = x * (x.square().mean() + EPSILON).rsqrt() * gain
        gate, value = (first.to(x.dtype) @ normed).chunk(2)
        x = x + second.to(x.dtype) @ (F.silu(gate) * value)
    return x


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda layers, width, inner: Cost(read=2 * 3 * layers * width * inner + 4 * width, write=4 * width),
    # Eight feed-forward blocks of Llama 3.2 1B's shape: 805 MB of weights.
    sizes={
        "bench": {"layers": 8, "width": 2048, "inner": 8192},
        "test": {"layers": 2, "width": 40, "inner": 72},
    },
    tolerance=0.01,  # activations are rounded to bf16 (0.2%) twice a block
    frozen=("gains", "up", "down"),
    as_drawn=("up", "down"),
)


def prepare(x: Tensor, gains: Tensor, up: Tensor, down: Tensor) -> Step:
    decode, (layers, width, inner) = load_cuda(__file__, "decode"), down.shape
    out, both = x.new_empty(width), x.new_empty(2 * inner)
    normed, active = gains.new_empty(width), gains.new_empty(inner)
    tensors = x, gains, up, down, out, normed, both, active
    replay = replayable(lambda: decode(*tensors, layers, width, inner, EPSILON), x.device)

    def step() -> Tensor:
        replay()
        return out

    return step
