"""Experiment: as xa, each kernel begins before the one before it has ended."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ch18.baseline_mla_absorbed_decode import ROTARY
from ch18.baseline_mla_absorbed_decode import workload as workload
from common.python.workload import Step

KEYS, PARTS = 32, 8  # of a tile; of a request's cache, a program each


@triton.jit
def absorb(q, to_keys, absorbed, requests, heads, WIDTH: tl.constexpr, LATENT: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr):
    """Queries of one head, of all requests, on their way into PART numbers of the latent space."""
    head, column, width = tl.program_id(0), tl.program_id(1) * PART + tl.arange(0, PART), tl.arange(0, WIDTH)
    request = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    place, mask = request * heads + head, (request < requests)[:, None]
    gdc_launch_dependents()
    matrix = tl.load(to_keys + (head * WIDTH + width[:, None]) * LATENT + column[None, :])
    mine = tl.load(q + place[:, None] * WIDTH + width[None, :], mask=mask, other=0.0)
    tl.store(absorbed + place[:, None] * LATENT + column[None, :], tl.dot(mine, matrix), mask=mask)


@triton.jit
def attend(
    q, q_rotary, cache, rotary, sums_of, logs_of, heads, keys, share, scale,
    LATENT: tl.constexpr, ROTARY: tl.constexpr, KEYS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """The attention of all heads to a part of a request's cache, and the logs of the weights' totals (base 2)."""
    part, parts, request = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    head, column, turn = tl.arange(0, HEADS), tl.arange(0, LATENT), tl.arange(0, ROTARY)
    mask, query = head < heads, request * heads + head
    gdc_launch_dependents()
    gdc_wait()
    mine = tl.load(q + query[:, None] * LATENT + column[None, :], mask=mask[:, None], other=0.0)
    turned = tl.load(q_rotary + query[:, None] * ROTARY + turn[None, :], mask=mask[:, None], other=0.0)
    sums = tl.zeros((HEADS, LATENT), tl.float32)
    total, peak = tl.zeros((HEADS,), tl.float32), tl.full((HEADS,), float("-inf"), tl.float32)
    for start in range(part * share, tl.minimum(part * share + share, keys), KEYS):
        key = start + tl.arange(0, KEYS)
        live, row = key < keys, request * keys + key
        latent = tl.load(cache + row[:, None] * LATENT + column[None, :], mask=live[:, None], other=0.0)
        own = tl.load(rotary + row[:, None] * ROTARY + turn[None, :], mask=live[:, None], other=0.0)
        scores = tl.dot(turned, own.T, tl.dot(mine, latent.T)) * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        sums = tl.dot(weights.to(latent.dtype), latent, sums * shrink[:, None])
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    slot = query * parts + part
    tl.store(sums_of + slot[:, None] * LATENT + column[None, :], sums / total[:, None], mask=mask[:, None])
    tl.store(logs_of + slot, peak + tl.log2(total), mask=mask)


@triton.jit
def finish(
    sums_of, logs_of, to_values, out, requests, heads, parts,
    LATENT: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One head of ROWS requests: the parts' attention weighted by their totals, and out of the latent space."""
    head, request, part = tl.program_id(0), tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, PARTS)
    query, live, width = request * heads + head, request < requests, tl.arange(0, WIDTH)
    slot, known = query * parts, live[:, None] & (part < parts)[None, :]
    gdc_wait()
    logs = tl.load(logs_of + slot[:, None] + part[None, :], mask=known, other=float("-inf"))
    peak = tl.max(tl.where(live[:, None], logs, 0.0), axis=1)
    total = tl.sum(tl.exp2(logs - peak[:, None]), axis=1)
    given = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in tl.static_range(0, LATENT, CHUNK):
        column = start + tl.arange(0, CHUNK)
        matrix = tl.load(to_values + (head * LATENT + column[:, None]) * WIDTH + width[None, :])
        merged = tl.zeros((ROWS, CHUNK), tl.float32)
        for one in tl.static_range(PARTS):
            here = live & (one < parts)
            weight = tl.exp2(tl.load(logs_of + slot + one, mask=here, other=float("-inf")) - peak)
            place = (slot + one)[:, None] * LATENT + column[None, :]
            merged += tl.load(sums_of + place, mask=here[:, None], other=0.0) * weight[:, None]
        merged = merged / tl.where(live, total, 1.0)[:, None]
        given = tl.dot(merged.to(matrix.dtype), matrix, given)
    tl.store(out + query[:, None] * WIDTH + width[None, :], given, mask=live[:, None])


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    (requests, heads, width), (_, keys, latent) = q.shape, cache.shape
    share = triton.cdiv(triton.cdiv(keys, PARTS), KEYS) * KEYS
    parts = triton.cdiv(keys, share)
    sums = q.new_empty(requests, heads, parts, latent, dtype=torch.float32)
    logs = q.new_empty(requests, heads, parts, dtype=torch.float32)
    absorbed, out = q.new_empty(requests, heads, latent), torch.empty_like(q)
    scale = (width + ROTARY) ** -0.5 * math.log2(math.e)  # weights are powers of 2
    rows, power = max(16, triton.next_power_of_2(heads)), triton.next_power_of_2(parts)
    sizes = (heads, keys, share, scale, latent, ROTARY, KEYS, rows)

    blocks, piece = triton.cdiv(requests, 16), min(128, latent)

    def step() -> Tensor:
        absorb[heads, latent // piece, blocks](q, to_keys, absorbed, requests, heads, width, latent, 16, piece, num_warps=4)
        attend[parts, requests](absorbed, q_rotary, cache, rotary, sums, logs, *sizes, num_warps=4, num_stages=3, launch_pdl=True)
        finish[heads, blocks](sums, logs, to_values, out, requests, heads, parts, latent, width, power, 16, piece, num_warps=8, launch_pdl=True)
        return out

    return step
