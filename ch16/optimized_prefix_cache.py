"""Blocks that requests share and their questions are one captured pass; of the last block only what is asked."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from ch16.baseline_prefix_cache import BLOCK, shared_blocks
from ch16.baseline_prefix_cache import workload as workload
from common.models.caches import causal_attention
from common.models.codes import own
from common.models.decoder import EPSILON, Shape, Weights, greedy, turned, turns
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)  # on a CPU the compiler takes most of a minute
Plan = tuple[tuple[int, int], ...]  # of each group of requests: how many, and how many blocks they share


def normed(layer: Weights, name: str, x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], layer[name], EPSILON)


def before(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (batch, length, heads, head_dim) of all tokens."""
    qkv = F.linear(normed(layer, "attention_norm", x), layer["qkv"]).unflatten(-1, (-1, shape.head_dim))
    q, k, v = qkv.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=2)
    return turned(q, cos, sin), turned(k, cos, sin), v


def keys_and_values(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    heads = F.linear(normed(layer, "attention_norm", x), layer["qkv"][shape.heads * shape.head_dim :])
    k, v = heads.unflatten(-1, (2, -1, shape.head_dim)).unbind(2)
    return turned(k, cos, sin), v


def after(layer: Weights, shape: Shape, x: Tensor, attended: Tensor) -> Tensor:
    x = x + F.linear(attended.flatten(2), layer["out"])
    gate, up = F.linear(normed(layer, "mlp_norm", x), layer["gate_up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, layer["down"])


def behind(q: Tensor, k: Tensor, v: Tensor, start: int, requests: int) -> Tensor:
    """Questions' queries (requests, length, ...) see `start` shared tokens and their own request's up to themselves."""
    keys, values = (
        torch.cat([x[:, :start].expand(requests, -1, -1, -1), x[0, start:].unflatten(0, (requests, -1))], 1)
        for x in (k, v)
    )
    q, keys, values = (x.transpose(1, 2) for x in (q, keys, values))
    # A name and no tensor, so that fused kernels can serve; the last token sees all.
    mask = causal_lower_right(q.shape[2], keys.shape[2]) if q.shape[2] > 1 else None
    return F.scaled_dot_product_attention(q, keys, values, mask, enable_gqa=True).transpose(1, 2)


def prefill(compiled: list[Callable[..., Any]], weights: Weights, shape: Shape, part: Tensor, blocks: int) -> Tensor:
    """Last states (requests, width): what all share and what is each one's own are one sequence of tokens."""
    (first, middle, last), start, (requests, length) = compiled, blocks * BLOCK, part.shape
    unique = torch.cat([part[0, :start], part[:, start:].flatten()])[None]
    positions = torch.arange(length, device=part.device)
    positions = torch.cat([positions[:start], positions[start:].repeat(requests)])[None]
    x = F.embedding(unique, weights["embedding"])
    cos, sin = turns(shape, positions, x.dtype)
    for layer in weights["layers"][:-1]:
        q, k, v = first(layer, shape, x, cos, sin)
        attended = behind(q[0, start:].unflatten(0, (requests, -1)), k, v, start, requests).flatten(0, 1)[None]
        if start:
            prefix = (each[:, :start] for each in (q, k, v))
            attended = torch.cat([causal_attention(*prefix), attended], 1)
        x = middle(layer, shape, x, attended)
    layer = weights["layers"][-1]
    k, v = last(layer, shape, x, cos, sin)
    ends = slice(length - 1, None, length - start)  # the last token of each request
    x, cos, sin = (each[0, ends][:, None] for each in (x, cos, sin))
    q = before(layer, shape, x, cos, sin)[0]
    x = after(layer, shape, x, behind(q, k, v, start, requests))[:, 0]
    return F.rms_norm(x, x.shape[-1:], weights["norm"], EPSILON)


def prepare(weights: Weights, shape: Shape, tokens: Tensor) -> Metered:
    device = tokens.device
    order, states = torch.arange(len(tokens), device=device), weights["head"].new_empty(len(tokens), shape.width)
    chosen = tokens.new_empty(len(tokens))
    codes = before, after, keys_and_values
    compiled = [torch.compile(own(code, __file__), fullgraph=True, dynamic=False) for code in codes]

    def passes(plan: Plan) -> Callable[[], None]:
        def work() -> None:
            requests, shared = zip(*plan)
            parts = tokens[order].split(requests)
            states[order] = torch.cat([prefill(compiled, weights, shape, *each) for each in zip(parts, shared)])
            chosen.copy_(greedy(weights, states))

        return replayable(work, device)

    def look_up() -> list[tuple[list[int], int]]:
        return shared_blocks(tokens.cpu().numpy())

    def plan_of(groups: list[tuple[list[int], int]]) -> Plan:
        return tuple((len(rows), blocks) for rows, blocks in groups)

    captured = {plan: passes(plan) for plan in (plan_of(look_up()),)}  # others follow when they come

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        groups = look_up()
        order.copy_(torch.tensor([row for rows, _ in groups for row in rows]), non_blocking=True)
        if (plan := plan_of(groups)) not in captured:
            captured[plan] = passes(plan)
        captured[plan]()
        deliver(range(len(tokens)))
        return chosen, states

    return metered(serve, device)
