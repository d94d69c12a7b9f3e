"""A pass of 64, 128 or 192 rows is a few fused kernels, which read only live tokens, straight from their pages."""

from functools import partial
from typing import Any

import numpy
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_serve_trace import passes
from ch20.baseline_serve_trace import workload as workload
from common.models.caches import new_cache
from common.models.codes import own
from common.models.decoder import EPSILON, Shape, Weights, greedy, turned, turns
from common.models.graphs import replayable
from common.models.timeline import Arrived, Deliver, interactive, metered
from common.python.workload import Metered

PAGE, ROWS = 4, (64, 128, 192)  # tokens; a graph for each of these numbers of rows


@triton.jit
def attend(  # type: ignore[no-untyped-def]
    q, keys, values, plan, out, entries, group, scale,
    DIM: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, QUERIES: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """The queries of a row that share a key head see its tokens up to its own, which is stored already."""
    row, of, shared = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    now, query, at = tl.load(plan + row * entries + 1), tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    live = (at < DIM)[None, :]
    mine, place = (query < group)[:, None] & live, ((row * shared + of) * group + query)[:, None] * DIM + at[None, :]
    queries = tl.load(q + place, mask=mine, other=0.0)
    peak, total = tl.full((QUERIES,), float("-inf"), tl.float32), tl.zeros((QUERIES,), tl.float32)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    for begin in tl.range(0, now + 1, TOKENS):
        token = begin + tl.arange(0, TOKENS)
        page = tl.load(plan + row * entries + 2 + token // PAGE, mask=token <= now, other=0)
        places = ((page * shared + of) * PAGE + token % PAGE)[:, None] * DIM + at[None, :]
        seen = (token <= now)[:, None] & live
        loaded, added = tl.load(keys + places, mask=seen, other=0.0), tl.load(values + places, mask=seen, other=0.0)
        scores = tl.dot(queries, tl.trans(loaded), input_precision="ieee") * scale
        scores = tl.where((token <= now)[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp(scores - higher[:, None]), tl.exp(peak - higher)
        sums = tl.dot(weights.to(added.dtype), added, sums * shrink[:, None], input_precision="ieee")
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    tl.store(out + place, (sums / total[:, None]).to(out.dtype.element_ty), mask=mine)


def before(layer: Weights, shape: Shape, x: Tensor, plan: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Turned queries (rows, heads, head_dim); keys and values go to their pages."""
    at = plan[:, 1:2]
    numbers = F.linear(F.rms_norm(x, x.shape[-1:], layer["attention_norm"], EPSILON), layer["qkv"])
    q, k, v = numbers.view(len(x), 1, -1, shape.head_dim).split((shape.heads, shape.kv_heads, shape.kv_heads), 2)
    page, slot = plan.gather(1, 2 + at // keys.shape[2]), at % keys.shape[2]
    heads, angles = torch.arange(shape.kv_heads, device=x.device), turns(shape, at, x.dtype)
    keys[page, heads, slot], values[page, heads, slot] = turned(k, *angles)[:, 0], v[:, 0]
    return turned(q, *angles)[:, 0].contiguous()


def after(layer: Weights, x: Tensor, attended: Tensor) -> Tensor:
    x = x + F.linear(attended, layer["out"])
    normed = F.rms_norm(x, x.shape[-1:], layer["mlp_norm"], EPSILON)
    gate, up = F.linear(normed, layer["gate_up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, layer["down"])


def settle(weights: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = F.rms_norm(x, x.shape[-1:], weights["norm"], EPSILON)
    return greedy(weights, hidden), hidden


def prepare(weights: Weights, shape: Shape, prompts: Tensor, wanted: Tensor, room: int) -> Metered:
    (requests, prompt), longest, dim = prompts.shape, int(wanted.max()), shape.head_dim
    pages, width, group = room // PAGE, -(-(prompt + longest) // PAGE), shape.heads // shape.kv_heads
    pool = new_cache(shape, pages + 1, PAGE, weights["head"])  # the last page takes what nobody reads
    ends, sequence = prompts.new_zeros(requests + 1), prompts.new_zeros(requests + 1, prompt + longest)
    plan, states = prompts.new_zeros(ROWS[-1], 2 + width), pool.keys[0].new_empty(requests + 1, shape.width)
    attended = states.new_empty(ROWS[-1], shape.heads, dim)
    fused = partial(torch.compile, fullgraph=True, dynamic=False, disable=not prompts.is_cuda)
    opening, closing, settling = (fused(own(code, __file__)) for code in (before, after, settle))
    tile: dict[str, Any] = {"WIDTH": max(16, triton.next_power_of_2(dim)), "QUERIES": 16, "PAGE": PAGE, "TOKENS": 32}

    def work(rows: int) -> None:
        part, mixed = plan[:rows], attended[:rows]
        who, at = part[:, 0], part[:, 1]
        x = F.embedding(sequence[who, at], weights["embedding"])
        for layer, keys, values in zip(weights["layers"], pool.keys, pool.values):
            q = opening(layer, shape, x, part, keys, values)
            attend[(rows, shape.kv_heads)](q, keys, values, part, mixed, 2 + width, group, dim**-0.5, dim, **tile)
            x = closing(layer, x, mixed.flatten(1))
        chosen, hidden = settling(weights, x)
        sequence[who, at + 1] = torch.where(at + 1 < prompt, sequence[who, at + 1], chosen)
        states[torch.where(at + 2 == ends[who], who, requests)] = hidden

    again = {rows: replayable(partial(work, rows), prompts.device) for rows in ROWS}

    @torch.inference_mode()
    def serve(deliver: Deliver, arrived: Arrived | None = None) -> tuple[Tensor, Tensor]:
        owned, table = (
            [list[int]() for _ in range(requests)] + [list(range(pages))],
            numpy.full((requests + 1, width), pages),
        )
        ends[:-1], sequence[:-1, :prompt], sequence[:-1, prompt:] = wanted + prompt, prompts, -1
        for together in passes(wanted.tolist(), prompt, PAGE, owned, ROWS[-1], "longest", arrived):
            rows = next(rows for rows in ROWS if rows >= len(together))
            for request, _ in (each for each in together if each[1] == 0):  # its pages have been chosen just now
                table[request, : len(owned[request])] = owned[request]
            tokens = numpy.array(together + [(requests, 0)] * (rows - len(together)))
            listed = torch.from_numpy(numpy.concatenate([tokens, table[tokens[:, 0]]], 1))
            plan[:rows].copy_(listed.pin_memory() if plan.is_cuda else listed, non_blocking=True)
            again[rows]()  # while the GPU runs this pass, the host plans the next
            deliver([request for request, at in together if at + 1 >= prompt])
        return sequence[:-1, prompt:], states[:-1]

    return metered(serve, prompts.device, interactive(requests))
