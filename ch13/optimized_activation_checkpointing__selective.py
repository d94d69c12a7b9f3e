"""Attention and its two products are kept; norms, gelu and the product into the wide states are run again."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ch13.baseline_activation_checkpointing import block, train_step
from ch13.baseline_activation_checkpointing import workload as workload
from common.python.workload import Step

ATTENTION = (
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
)


def prepare(
    x: Tensor, target: Tensor, qkv: list[Tensor], out: list[Tensor], up: list[Tensor], down: list[Tensor]
) -> Step:
    wide = up[0].shape[0]

    def policy(_context: Any, operator: Any, *arguments: Any, **_options: Any) -> CheckpointPolicy:
        """Keep what is dear to compute for its bytes. The MLP's wide states are as dear, but are half of all bytes."""
        product = operator is torch.ops.aten.mm.default and wide not in (arguments[0].shape[1], arguments[1].shape[1])
        return CheckpointPolicy.MUST_SAVE if product or operator in ATTENTION else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    again = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
    return train_step(again, x, target, qkv, out, up, down)
