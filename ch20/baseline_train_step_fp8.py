"""The training step that `train_step_8b` ends with: every product runs on bf16 tensor cores."""

from dataclasses import replace

import torch
from torch import Tensor

from common.models.codes import own
from common.models.decoder import SHAPES, Shape, Weights, block
from common.models.training import plain_step, step_cost, step_inputs, training
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(memory_gib=60, tools=["g++"])
MODELS = {
    "llama31_8b_sixteenth": replace(SHAPES["llama31_8b"], layers=2, vocabulary=8064),  # as in `train_step_8b`
    "odd": Shape(layers=2, width=384, heads=6, kv_heads=2, hidden=272, vocabulary=353),  # fp8 wants multiples of 16
}


def inputs(draw: Draw, model: str, batch: int, length: int) -> Inputs:
    """Weights and moments are bf16."""
    return step_inputs(draw, MODELS[model], batch, length, torch.bfloat16, history=0.3)


def cost(model: str, batch: int, length: int) -> list[Cost]:
    """As of `train_step_8b`, but with the blocks' products at fp8's rate; head and attention stay in bf16."""
    return step_cost(MODELS[model], batch, length, torch.bfloat16.itemsize, "fp8")


workload = Workload(
    inputs=inputs,
    reference=plain_step,
    cost=cost,
    sizes={
        "bench": {"model": "llama31_8b_sixteenth", "batch": 2, "length": 2048},
        "test": {"model": "odd", "batch": 2, "length": 168},
    },
    # Of the state after the update, where a history of moments dilutes a gradient. At `test` size e4m3 products put a
    # norm's weights up to 3.5% off, e5m2 products, of a bit less, 4.8% or more: that is refused.
    tolerance=0.042,
    mutates=("weights", "means", "squares"),
    as_drawn=("means", "squares"),  # widened when the gradients are there: before, they would be 8 GB beside them
    clock="end_to_end",
)


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    run = torch.compile(own(block, __file__), fullgraph=True, dynamic=False)
    return training(weights, means, squares, tokens, count, shape, run=run, fused=True)
