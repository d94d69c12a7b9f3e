"""Prompts and decoding tokens pass in one ragged row, operator by operator: the host takes longer than the kernels."""

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from common.models.decoder import EPSILON, Shape, Weights, draw_weights, turned, turns
from common.models.references import hidden_states
from common.python.workload import Cost, Draw, Inputs, Step, Workload

Made = tuple[Tensor, ...]  # by a piece: hidden states, cosines, sines, queries, keys and values of all tokens
SMOL = {"layers": 12, "vocabulary": 32000, "width": 576, "heads": 9, "kv_heads": 3, "hidden": 1536}  # SmolLM2-135M's
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


def inputs(draw: Draw, shape: dict[str, int], requests: int, chunk: int, passes: int, dtype: str) -> Inputs:
    """Texts (requests, room), and on the host how many tokens of each pass: a chunk of one request, one of others."""
    weights, counts = draw_weights(draw, Shape(**shape), getattr(torch, dtype)), torch.ones(passes, requests).long()
    index = torch.arange(passes)
    counts[index, draw.permutation(requests)[:passes].cpu()] = chunk - 2 * index
    texts = draw.integers(requests, chunk + passes, high=shape["vocabulary"])
    return {"weights": weights, "shape": Shape(**shape), "texts": texts, "counts": counts}


def plan(counts: Tensor) -> list[Tensor]:
    """Of each pass, its tokens' requests and positions (2, tokens), request after request; on the host."""
    owners = [torch.arange(len(count)).repeat_interleave(count) for count in counts]
    firsts = counts.cumsum(1) - counts.cumsum(0)  # where a request's tokens begin in the row, less its position there
    return [torch.stack([own, torch.arange(len(own)) - first[own]]) for own, first in zip(owners, firsts)]


def reference(weights: Weights, shape: Shape, texts: Tensor, counts: Tensor) -> Tensor:
    """The last hidden state of every token (all tokens, width), as planned."""
    states = [hidden_states(weights, shape, text[:n]) for text, n in zip(texts, counts.sum(0).tolist())]
    return torch.stack([states[i][j] for i, j in torch.cat(plan(counts.cpu()), 1).T.tolist()])


def cost(shape: dict[str, int], requests: int, chunk: int, passes: int, dtype: str) -> Cost:
    """The products of all tokens, and one read of the blocks: the texts are known, so one pass could take them all."""
    blocks, tokens = shape["layers"] * Shape(**shape).layer_weights, passes * (requests + chunk - passes)
    moved = {"read": 2 * blocks, "write": 2 * tokens * shape["width"]}
    return Cost(**moved, flops=2 * blocks * tokens, dtype="bf16", items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": SMOL, "requests": 32, "chunk": 224, "passes": 6, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "requests": 3, "chunk": 21, "passes": 2, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    clock="end_to_end",
)


@triton.jit
def look(queries, keys, values, owners, positions, room,
         H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, ROOM: tl.constexpr):  # fmt: skip
    """A program for a token and a key head: its query is replaced by what it sees of keys (requests, room, H, D)."""
    own, head, place = tl.program_id(0), tl.program_id(1), tl.load(positions + tl.program_id(0))
    row, dim, token = tl.arange(0, 16)[:, None], tl.arange(0, D)[None, :], tl.arange(0, ROOM)
    mine = queries + ((own * H + head) * G + row) * D + dim
    at = (((tl.load(owners + own) * room + token) * H + head) * D)[:, None] + dim
    key = tl.load(keys + at, mask=token[:, None] <= place, other=0.0)
    value = tl.load(values + at, mask=token[:, None] <= place, other=0.0)
    scores = tl.dot(tl.load(mine, mask=row < G, other=0.0), tl.trans(key))
    scores = tl.where(token[None, :] <= place, scores, float("-inf"))
    weight = tl.exp((scores - tl.max(scores, 1)[:, None]) * D**-0.5)
    tl.store(mine, tl.dot(weight.to(value.dtype), value) / tl.sum(weight, 1)[:, None], mask=row < G)


def piece(weights: Weights, shape: Shape, index: int, tokens: Tensor, positions: Tensor, made: Made) -> Made:
    """What is done to each token by itself between attention number `index` - 1 and the next."""
    layers, normed = weights["layers"], partial(F.rms_norm, normalized_shape=(shape.width,), eps=EPSILON)
    if index == 0:
        x, turn = F.embedding(tokens, weights["embedding"]), turns(shape, positions, weights["head"].dtype)
    else:
        x, *turn, seen = made[:4]
        x = x + F.linear(seen.flatten(1), layers[index - 1]["out"])
        gate, up = F.linear(normed(x, weight=layers[index - 1]["mlp_norm"]), layers[index - 1]["gate_up"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, layers[index - 1]["down"])
    if index == len(layers):
        return (normed(x, weight=weights["norm"]),)
    qkv = F.linear(normed(x, weight=layers[index]["attention_norm"]), layers[index]["qkv"])
    q, k, v = qkv.unflatten(1, (-1, shape.head_dim)).split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
    return x, *turn, turned(q, *turn), turned(k, *turn), v


def serving(weights: Weights, shape: Shape, texts: Tensor, counts: Tensor, run: Callable[..., Made]) -> Step:
    """A piece runs, then attention, and so on; pieces may give more rows than there are tokens."""
    form, room, head = (shape.kv_heads, shape.heads // shape.kv_heads, shape.head_dim), texts.shape[1], weights["head"]
    pool = head.new_zeros(shape.layers, 2, texts.numel(), *form[::2])

    @torch.inference_mode()
    def step() -> Tensor:
        out = head.new_empty(int(counts.sum()), shape.width)
        for where, states in zip(plan(counts), out.split(counts.sum(1).tolist())):
            owners, positions = where.to(out.device, non_blocking=True)
            made, slots = run(0, tokens := texts[owners, positions], positions, ()), owners * room + positions
            for index, stores in enumerate(pool):
                for store, new in zip(stores, made[4:]):
                    store.index_copy_(0, slots, new[: len(tokens)])
                given = made[3], *stores, owners, positions, room, *form, triton.next_power_of_2(room)
                look[len(tokens), shape.kv_heads](*given, num_warps=8)
                made = run(index + 1, tokens, positions, made)
            states.copy_(made[0][: len(tokens)])
        return out

    return step


def prepare(weights: Weights, shape: Shape, texts: Tensor, counts: Tensor) -> Step:
    return serving(weights, shape, texts, counts, partial(piece, weights, shape))
