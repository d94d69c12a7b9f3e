"""All steps, both passes of each in one batch, are one CUDA graph of blocks that torch.compile has fused."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_dit_sampler import GUIDANCE, HEAD, Weights, modulated
from ch20.baseline_dit_sampler import workload as workload
from common.models.codes import own
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(tools=["g++"])


def attended(hidden: Tensor, shift: Tensor, scale: Tensor, gate: Tensor, qkv: Tensor, out: Tensor) -> Tensor:
    numbers = F.linear(modulated(hidden, shift, scale), qkv).unflatten(-1, (3, -1, HEAD))
    mixed = F.scaled_dot_product_attention(*numbers.permute(2, 0, 3, 1, 4).unbind())
    return torch.addcmul(hidden, gate, F.linear(mixed.transpose(1, 2).flatten(2), out))


def widened(hidden: Tensor, shift: Tensor, scale: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    wide = F.gelu(F.linear(modulated(hidden, shift, scale), up), approximate="tanh")
    return torch.addcmul(hidden, gate, F.linear(wide, down))


def block(hidden: Tensor, parts: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    shifts = parts[:, None].chunk(6, -1)
    return widened(attended(hidden, *shifts[:3], qkv, out), *shifts[3:], up, down)


def prepare(
    noise: Tensor,
    classes: Tensor,
    no_class: Tensor,
    times: Tensor,
    positions: Tensor,
    ends: list[Tensor],
    blocks: list[Weights],
) -> Step:
    out, steps = torch.empty_like(noise), len(times)
    fused = torch.compile(own(block, __file__), fullgraph=True, dynamic=False)

    def sample() -> None:
        conditions = torch.cat([classes, no_class.expand_as(classes)])
        known = F.silu(conditions + times[:, None])  # steps, images and width: all steps' conditions are known
        parts = [F.linear(known, each["modulation"]) for each in blocks]
        x = noise
        for step in range(steps):
            hidden = F.linear(x.repeat(2, 1, 1), ends[0]) + positions
            for each, modulation in zip(blocks, parts):
                hidden = fused(hidden, modulation[step], each["qkv"], each["out"], each["up"], each["down"])
            with_class, without = F.linear(F.layer_norm(hidden, hidden.shape[-1:]), ends[1]).chunk(2)
            x = x + (without + GUIDANCE * (with_class - without)) / steps
        out.copy_(x)

    again = replayable(torch.inference_mode()(sample), noise.device)

    def step() -> Tensor:
        again()
        return out

    return step
