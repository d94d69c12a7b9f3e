"""Every block runs its forward twice, operator by operator, and AdamW walks through all of its state many times."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from common.models.decoder import SHAPES, Shape, Weights, block
from common.models.training import plain_step, step_cost, step_inputs, training
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(memory_gib=52)  # six variants and the control with weights and moments each, 20, and a reference of 23
MODELS = {
    # 2 of the 8B's 32 blocks, of full width, and of its vocabulary an equal share.
    "llama31_8b_sixteenth": replace(SHAPES["llama31_8b"], layers=2, vocabulary=8064),
    "small": Shape(layers=2, width=128, heads=4, kv_heads=2, hidden=344, vocabulary=512),
    "odd": Shape(layers=2, width=396, heads=6, kv_heads=2, hidden=131, vocabulary=97),
}


def inputs(draw: Draw, model: str, batch: int, length: int, dtype: str) -> Inputs:
    """Weights and moments are all of one type. Optimizers of large runs hold theirs in float32: twice the bytes."""
    return step_inputs(draw, MODELS[model], batch, length, getattr(torch, dtype), history=0.1)


def cost(model: str, batch: int, length: int, dtype: str) -> list[Cost]:
    return step_cost(MODELS[model], batch, length, getattr(torch, dtype).itemsize, "bf16")


workload = Workload(
    inputs=inputs,
    reference=plain_step,
    cost=cost,
    sizes={
        "bench": {"model": "llama31_8b_sixteenth", "batch": 2, "length": 2048, "dtype": "bfloat16"},
        "cpu": {"model": "small", "batch": 2, "length": 64, "dtype": "float32"},
        "test": {"model": "odd", "batch": 3, "length": 37, "dtype": "float32"},
    },
    tolerance=0.015,  # bf16 rounds at 0.2%, again and again on its way through the blocks and back
    mutates=("weights", "means", "squares"),
    clock="end_to_end",
    rungs="fused_adamw compile selective_checkpoint",
)


twice = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False)  # there is no dropout to replay


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    return training(weights, means, squares, tokens, count, shape, run=twice)
