"""The prompt is computed once: the responses follow it in one row, and each sees only the prompt and itself."""

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from ch20.baseline_grpo_shared_prompt import learning, loss_of
from ch20.baseline_grpo_shared_prompt import workload as workload
from common.models.caches import causal_attention
from common.models.decoder import Shape, Weights, forward, turns
from common.python.workload import Step


def prepare(weights: Weights, shape: Shape, prompt: Tensor, responses: Tensor, advantages: Tensor) -> Step:
    start, (count, length) = len(prompt), responses.shape
    place = torch.arange(start + length - 1, device=prompt.device)
    positions = torch.cat([place[:start], place[start:].repeat(count)])[None]
    turning = turns(shape, positions, weights["head"].dtype)
    mask = causal_lower_right(length - 1, len(place))

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ahead = causal_attention(q[:, :start], k[:, :start], v[:, :start])
        queries = q[0, start:].unflatten(0, (count, -1)).transpose(1, 2)
        keys, values = (
            torch.cat([x[:, :start].expand(count, -1, -1, -1), x[0, start:].unflatten(0, (count, -1))], 1).transpose(
                1, 2
            )
            for x in (k, v)
        )
        behind = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
        return torch.cat([ahead, behind.transpose(1, 2).flatten(0, 1)[None]], 1)

    def loss(leaves: Weights) -> Tensor:
        tokens = torch.cat([prompt, responses[:, :-1].flatten()])[None]
        hidden = forward(leaves, shape, tokens, turning, attend)[0]
        first = hidden[start - 1].expand(count, 1, -1)  # all responses begin from the prompt's last state
        states = torch.cat([first, hidden[start:].unflatten(0, (count, -1))], 1)
        return loss_of(states, leaves["head"], responses, advantages)

    return learning(loss, weights)
