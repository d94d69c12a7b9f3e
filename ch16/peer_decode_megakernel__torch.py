"""The blocks as torch operators with cuBLAS products, captured as a graph of some thirty kernels a block."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ch16.baseline_decode_megakernel import DIM, EPSILON
from ch16.baseline_decode_megakernel import workload as workload
from common.models.graphs import replayable
from common.python.workload import Step


def prepare(
    x: Tensor, cosines: Tensor, sines: Tensor, gains: Tensor, keys: Tensor, values: Tensor, **w: Tensor
) -> Step:
    (layers, kv_heads, _, _), heads = keys.shape, len(x) // DIM
    out, fresh = torch.empty_like(x), keys.new_empty(layers, 2, kv_heads, DIM)

    def blocks() -> None:
        h, cos, sin = x, cosines.bfloat16(), sines.bfloat16()
        for i, gain in enumerate(gains):
            normed = F.rms_norm(h.bfloat16(), h.shape, gain[0], EPSILON)
            rows = F.linear(normed, w["qkv"][i]).view(-1, DIM)
            left, right = rows[: heads + kv_heads].chunk(2, dim=1)
            turned = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=1)
            fresh[i] = torch.cat([turned[heads:], rows[heads + kv_heads :]]).view(2, kv_heads, DIM)
            k, v = (torch.cat([old[i], own[:, None]], dim=1) for old, own in zip((keys, values), fresh[i]))
            attended = F.scaled_dot_product_attention(turned[None, :heads, None], k[None], v[None], enable_gqa=True)
            h = h + F.linear(attended.flatten(), w["attended"][i])
            normed = F.rms_norm(h.bfloat16(), h.shape, gain[1], EPSILON)
            gate, up = F.linear(normed, w["gate_up"][i]).chunk(2)
            h = h + F.linear(F.silu(gate) * up, w["down"][i])
        out.copy_(h)

    replay = replayable(blocks, x.device)

    def step() -> tuple[Tensor, Tensor]:
        replay()
        return out, fresh

    return step
