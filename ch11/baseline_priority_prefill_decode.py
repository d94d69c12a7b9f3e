"""Prefill and decode on two streams of one priority: each decode kernel queues behind a prefill kernel's blocks."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

TILE, INNER = 128, 64


@triton.jit
def linear_relu(x, weight, out, rows, inner, columns, TILE: tl.constexpr, INNER: tl.constexpr):
    """relu(x @ weight), one tile a program: many short blocks, between any two of which another kernel may begin."""
    tile, across, at = tl.program_id(0).to(tl.int64), tl.cdiv(columns, TILE), tl.arange(0, TILE)
    row, column = (tile // across * TILE + at)[:, None], (tile % across * TILE + at)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, inner, INNER):
        k = start + tl.arange(0, INNER)
        left = tl.load(x + row * inner + k[None, :], (row < rows) & (k[None, :] < inner), 0.0)
        right = tl.load(weight + k[:, None] * columns + column, (k[:, None] < inner) & (column < columns), 0.0)
        total = tl.dot(left, right, total)
    tl.store(out + row * columns + column, tl.maximum(total, 0.0), mask=(row < rows) & (column < columns))


@triton.jit
def attend(state, keys, values, following, context, scale, WIDTH: tl.constexpr, KEYS: tl.constexpr):
    """state + attention(state), one program a head: few blocks, each of which reads its head's whole cache."""
    head, at = tl.program_id(0), tl.arange(0, WIDTH)
    query = tl.load(state + head * WIDTH + at)
    highest, total, mixed = -float("inf"), 0.0, tl.zeros((WIDTH,), tl.float32)
    for start in range(0, context, KEYS):
        key = start + tl.arange(0, KEYS)
        there = (key < context)[:, None]
        where = (head * context + key)[:, None] * WIDTH + at[None, :]
        scores = tl.sum(tl.load(keys + where, there, 0.0) * query[None, :], axis=1)
        scores = tl.where(key < context, scores * scale, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        shrink, weights, highest = tl.exp(highest - higher), tl.exp(scores - higher), higher
        total = total * shrink + tl.sum(weights, axis=0)
        mixed = mixed * shrink + tl.sum(tl.load(values + where, there, 0.0) * weights[:, None], axis=0)
    tl.store(following + head * WIDTH + at, query + mixed / total)


def prefill(prompts: Tensor, weights: Tensor, buffers: list[Tensor]) -> Tensor:
    """All layers; `buffers` are two of the prompts' shape, of which one holds the answer."""
    rows, width = prompts.shape
    tiles = triton.cdiv(rows, TILE) * triton.cdiv(width, TILE)
    for weight, out in zip(weights, buffers * len(weights)):
        linear_relu[(tiles,)](prompts, weight, out, rows, width, width, TILE=TILE, INNER=INNER, num_warps=8)
        prompts = out
    return prompts


def decode(state: Tensor, keys: Tensor, values: Tensor, following: Tensor) -> None:
    """One link of the chain: `following` from `state`, both (heads, width), and the caches of one layer."""
    heads, context, width = keys.shape
    attend[(heads,)](state, keys, values, following, context, width**-0.5, WIDTH=width, KEYS=128, num_warps=8)


def inputs(draw: Draw, tokens: int, width: int, layers: int, links: int, heads: int, context: int, size: int) -> Inputs:
    return {
        "prompts": draw.normal(tokens, width, dtype=torch.float16),
        "weights": draw.normal(layers, width, width, std=(2 / width) ** 0.5, dtype=torch.float16),
        "query": draw.normal(heads, size),
        "keys": draw.normal(links, heads, context, size, dtype=torch.float16),
        "values": draw.normal(links, heads, context, size, dtype=torch.float16),
    }


def reference(prompts: Tensor, weights: Tensor, query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    states = [query]
    for key, value in zip(keys, values):
        scores = torch.einsum("hd,hkd->hk", states[-1], key) / key.shape[2] ** 0.5
        states.append(states[-1] + torch.einsum("hk,hkd->hd", scores.softmax(dim=1), value))
    for weight in weights:
        prompts = (prompts @ weight).relu()
    return prompts, torch.stack(states)


def cost(tokens: int, width: int, layers: int, links: int, heads: int, context: int, size: int) -> Cost:
    cached, weights = 2 * links * heads * context * size, layers * width**2
    halves = tokens * width + weights + cached
    return Cost(flops=2 * (tokens * weights + cached), dtype="fp16", read=2 * halves, write=2 * tokens * width)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"tokens": 65536, "width": 2048, "layers": 6, "links": 64, "heads": 8, "context": 1024, "size": 128},
        "test": {"tokens": 131, "width": 37, "layers": 3, "links": 5, "heads": 3, "context": 77, "size": 16},
    },
    tolerance=2e-3,  # fp16 between layers; a decode kernel left out would be an error of 2e-2
)


def side_by_side(prompts: Tensor, weights: Tensor, query: Tensor, keys: Tensor, values: Tensor, priority: int) -> Step:
    """The prefill on the current stream, and the chain on another of this priority (lower numbers come first)."""
    gpu = torch.get_device_module(prompts.device)
    buffers, states = [torch.empty_like(prompts) for _ in range(2)], query.new_empty(len(keys) + 1, *query.shape)
    side = gpu.Stream(priority=priority)

    def step() -> tuple[Tensor, Tensor]:
        side.wait_stream(gpu.current_stream())
        prompted = prefill(prompts, weights, buffers)
        with gpu.stream(side):
            states[0].copy_(query)
            for link in zip(states, keys, values, states[1:]):
                decode(*link)
        gpu.current_stream().wait_stream(side)
        return prompted, states

    return step


def prepare(prompts: Tensor, weights: Tensor, query: Tensor, keys: Tensor, values: Tensor) -> Step:
    return side_by_side(prompts, weights, query, keys, values, priority=0)
