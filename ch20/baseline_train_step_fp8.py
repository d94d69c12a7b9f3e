"""The training step that `train_step_8b` ends with: every product runs on bf16 tensor cores."""

from dataclasses import replace

import torch
from torch import Tensor

from common.models.codes import own
from common.models.decoder import SHAPES, Shape, Weights, block
from common.models.training import draw_state, plain_step, training
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(memory_gib=60, tools=["g++"])
MODELS = {
    "llama31_8b_sixteenth": replace(SHAPES["llama31_8b"], layers=2, vocabulary=8064),  # as in `train_step_8b`
    "odd": Shape(layers=2, width=384, heads=6, kv_heads=2, hidden=272, vocabulary=353),  # fp8 wants multiples of 16
}


def inputs(draw: Draw, model: str, batch: int, length: int) -> Inputs:
    """Weights and moments are bf16."""
    shape = MODELS[model]
    weights, means, squares = draw_state(draw, shape, batch * length, torch.bfloat16, history=0.3)
    return {
        "weights": weights,
        "means": means,
        "squares": squares,
        "tokens": draw.integers(batch, length + 1, high=shape.vocabulary),
        "count": draw.host.integers(1, low=1, high=20),  # of this update; the training loop counts on the host
        "shape": shape,
    }


def cost(model: str, batch: int, length: int) -> Cost:
    """Model FLOPs as in `train_step_8b`, all at fp8's rate: head and attention, a tenth of them, stay in bf16."""
    shape, tokens = MODELS[model], batch * length
    attention = 6 * tokens * shape.layers * length * shape.width  # half of 12: no query sees later keys
    numbers = shape.read_weights + shape.vocabulary * shape.width + (2 * shape.layers + 1) * shape.width
    return Cost(
        flops=6 * tokens * shape.read_weights + attention,
        dtype="fp8",
        hbm_bytes=12 * numbers,  # weights and two moments in bf16, read and written
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=plain_step,
    cost=cost,
    sizes={
        "bench": {"model": "llama31_8b_sixteenth", "batch": 2, "length": 2048},
        "test": {"model": "odd", "batch": 2, "length": 168},
    },
    # Of the state after the update, where a history of moments dilutes a gradient. Gradients through e4m3 products are
    # 10 to 14% off and move a mean by up to 3%; through e5m2 products, of a bit less, by 4% at least, which is refused.
    tolerance=0.035,
    mutates=("weights", "means", "squares"),
    clock="end_to_end",
)


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    run = torch.compile(own(block, __file__), fullgraph=True, dynamic=False)
    return training(weights, means, squares, tokens, count, shape, run=run, fused=True)
