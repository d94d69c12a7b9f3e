"""Products and attention are kept, and only what is cheap between them is run again: a quarter of all FLOPs less."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ch20.baseline_train_step_8b import workload as workload
from common.models.decoder import Shape, Weights, block
from common.models.training import training
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(memory_gib=52)
KEPT = (
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
)


def policy(_context: Any, operator: Any, *_arguments: Any, **_options: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Step:
    contexts = partial(create_selective_checkpoint_contexts, policy)
    run = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
    return training(weights, means, squares, tokens, count, shape, run=run)
