"""diffusers' transformer blocks (AdaLN-Zero, as its DiT has them), compiled, both passes of guidance as one batch."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ch20.baseline_dit_sampler import GUIDANCE, HEAD, Weights
from ch20.baseline_dit_sampler import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["diffusers"], tools=["g++"])
EPSILON = 1e-5  # of torch's layer norms, which the pair has


class Given(nn.Module):
    """In place of a block's own embedding of time and class, which come with the pair's inputs."""

    def forward(self, condition: Tensor, *_: Any, **__: Any) -> Tensor:
        return condition


def block_of(weights: Weights) -> nn.Module:
    from diffusers.models.attention import BasicTransformerBlock

    width = weights["out"].shape[0]
    sizes = {"dim": width, "num_attention_heads": width // HEAD, "attention_head_dim": HEAD}
    kind = {"norm_type": "ada_norm_zero", "num_embeds_ada_norm": 1, "activation_fn": "gelu-approximate"}
    block = BasicTransformerBlock(**sizes, **kind, norm_elementwise_affine=False, ff_bias=False)
    block = block.to(weights["out"].device, weights["out"].dtype).requires_grad_(False)
    block.norm1.emb, block.norm1.norm.eps, block.norm3.eps = Given(), EPSILON, EPSILON
    q, k, v = weights["qkv"].chunk(3)
    attention, (widen, _, narrow) = block.attn1, block.ff.net
    linears = {"modulation": block.norm1.linear, "out": attention.to_out[0], "up": widen.proj, "down": narrow}
    each = [*((linear, weights[name]) for name, linear in linears.items()), (attention.to_q, q), (attention.to_k, k)]
    for linear, matrix in [*each, (attention.to_v, v)]:
        linear.weight = nn.Parameter(matrix, requires_grad=False)  # the inputs themselves, not copies
        linear.bias = None
    return block


def prepare(
    noise: Tensor,
    classes: Tensor,
    no_class: Tensor,
    times: Tensor,
    positions: Tensor,
    ends: list[Tensor],
    blocks: list[Weights],
) -> Step:
    stack = [block_of(weights) for weights in blocks]

    def direction(x: Tensor, condition: Tensor) -> Tensor:
        hidden = F.linear(x, ends[0]) + positions
        for block in stack:
            hidden = block(hidden, timestep=condition)
        return F.linear(F.layer_norm(hidden, hidden.shape[-1:]), ends[1])

    fused = torch.compile(direction, mode="reduce-overhead", fullgraph=True, dynamic=False)

    @torch.inference_mode()
    def step() -> Tensor:
        conditions, x = torch.cat([classes, no_class.expand_as(classes)]), noise
        for moment in times:
            torch.compiler.cudagraph_mark_step_begin()
            with_class, without = fused(x.repeat(2, 1, 1), conditions + moment).chunk(2)
            x = x + (without + GUIDANCE * (with_class - without)) / len(times)
        return x

    return step
