"""The first request begins while the host looks blocks up; then all distinct tokens are one pass, in two graphs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from ch16.baseline_prefix_cache import BLOCK, shared_blocks
from ch16.baseline_prefix_cache import workload as workload
from common.models.caches import causal_attention, grouped_attention
from common.models.codes import own
from common.models.decoder import EPSILON, Shape, Weights, greedy, turned, turns
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)  # on a CPU the compiler takes most of a minute
Plan = tuple[tuple[int, int], ...]  # of each group of requests: how many, and how many blocks they share


def before(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    qkv = F.linear(F.rms_norm(x, x.shape[-1:], layer["attention_norm"], EPSILON), layer["qkv"])
    q, k, v = qkv.unflatten(-1, (-1, shape.head_dim)).split((shape.heads, shape.kv_heads, shape.kv_heads), dim=2)
    return turned(q, cos, sin), turned(k, cos, sin), v


def opening(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = before(layer, shape, x, cos, sin)
    return k, v, causal_attention(q, k, v)  # of a request that sees itself alone


def keys_and_values(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    x = F.rms_norm(x, x.shape[-1:], layer["attention_norm"], EPSILON)
    k, v = F.linear(x, layer["qkv"][shape.heads * shape.head_dim :]).unflatten(-1, (2, -1, shape.head_dim)).unbind(2)
    return turned(k, cos, sin), v


def after(layer: Weights, shape: Shape, x: Tensor, attended: Tensor) -> Tensor:
    x = x + F.linear(attended.flatten(2), layer["out"])
    gate, up = F.linear(F.rms_norm(x, x.shape[-1:], layer["mlp_norm"], EPSILON), layer["gate_up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, layer["down"])


def behind(q: Tensor, k: Tensor, v: Tensor, start: int, requests: int) -> Tensor:
    """The last requests' own queries see the `start` shared tokens, and their request's up to themselves."""
    q, *own_kv = (x[0, -q.shape[1] :].unflatten(0, (requests, -1)) for x in (q, k, v))
    both = (torch.cat([x[:, :start].expand(requests, -1, -1, -1), y], 1) for x, y in zip((k, v), own_kv))
    q, k, v = (x.transpose(1, 2) for x in (q, *both))
    mask = causal_lower_right(q.shape[2], k.shape[2])  # a name and no tensor, so that fused kernels can serve
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(1, 2).flatten(0, 1)[None]


def prefill(codes: list[Any], weights: Weights, shape: Shape, part: Tensor, blocks: int, ready: list[Tensor]) -> Tensor:
    """Last states (requests, width): the first request, then the others' own tokens, are one sequence."""
    (alone, others, middle, last), start, (requests, length) = codes, blocks * BLOCK, part.shape
    at, unique = torch.arange(length, device=part.device), torch.cat([part[0], part[1:, start:].flatten()])[None]
    x = F.embedding(unique, weights["embedding"])
    cos, sin = turns(shape, torch.cat([at, at[start:].repeat(requests - 1)])[None], x.dtype)
    for layer in weights["layers"][:-1]:
        k, v, attended = ready or alone(layer, shape, *(each[:, :length] for each in (x, cos, sin)))
        if requests > 1:
            q, *own_kv = others(layer, shape, *(each[:, length:] for each in (x, cos, sin)))
            k, v = (torch.cat(both, 1) for both in zip((k, v), own_kv))
            attended = torch.cat([attended, behind(q, k, v, start, requests - 1)], 1)
        x, ready = middle(layer, shape, x, attended), []
    layer = weights["layers"][-1]
    k, v = last(layer, shape, x, cos, sin)
    owner = (torch.arange(x.shape[1], device=part.device) - start) // (length - start)  # negative: of all requests
    seen = (owner < 0) | (owner == torch.arange(requests, device=part.device)[:, None])
    x, cos, sin = (each[:, length - 1 :: length - start] for each in (x, cos, sin))  # the last token of each request
    q = others(layer, shape, x, cos, sin)[0]
    x = after(layer, shape, x, grouped_attention(q, k.transpose(1, 2), v.transpose(1, 2), seen[None]))[0]
    return F.rms_norm(x, x.shape[-1:], weights["norm"], EPSILON)


def prepare(weights: Weights, shape: Shape, tokens: Tensor) -> Metered:
    device, arrived = tokens.device, torch.get_device_module(tokens.device).Event()
    order, states = torch.arange(len(tokens), device=device), weights["head"].new_empty(len(tokens), shape.width)
    chosen, host = tokens.new_empty(len(tokens)), tokens.cpu().pin_memory() if tokens.is_cuda else tokens.clone()
    codes = (own(code, __file__) for code in (opening, before, after, keys_and_values))
    compiled, opened = [torch.compile(code, fullgraph=True, dynamic=False) for code in codes], list[Tensor]()

    def begin() -> None:  # the first request is the first of its group, whatever the plan
        x, positions = F.embedding(tokens[:1], weights["embedding"]), torch.arange(tokens.shape[1], device=device)[None]
        opened[:] = compiled[0](weights["layers"][0], shape, x, *turns(shape, positions, x.dtype))

    def passes(plan: Plan) -> Callable[[], None]:
        def work() -> None:
            requests, shared = zip(*plan)
            groups = zip(tokens[order].split(requests), shared, [opened, *[[]] * (len(plan) - 1)])
            states[order] = torch.cat([prefill(compiled, weights, shape, *group) for group in groups])
            chosen.copy_(greedy(weights, states))

        return replayable(work, device)

    def look_up() -> tuple[list[int], Plan]:
        groups = shared_blocks(host.numpy())
        return [row for rows, _ in groups for row in rows], tuple((len(rows), blocks) for rows, blocks in groups)

    begin_again, captured = replayable(begin, device), {plan: passes(plan) for _, plan in [look_up()]}

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        host.copy_(tokens, non_blocking=True)
        arrived.record()
        begin_again()
        arrived.synchronize()
        rows, plan = look_up()  # while the first request is under way
        order.copy_(torch.tensor(rows, pin_memory=tokens.is_cuda), non_blocking=True)
        if plan not in captured:
            captured[plan] = passes(plan)
        captured[plan]()
        deliver(range(len(tokens)))
        return chosen, states

    return metered(serve, device)
