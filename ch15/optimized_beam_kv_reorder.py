"""The cache stays where it is, and a list names each token once that several beams share: it is read once for them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch15.baseline_beam_kv_reorder import HEAD_DIM, HEADS, KV_HEADS
from ch15.baseline_beam_kv_reorder import workload as workload
from common.python.workload import Step

CHUNK, PARTS = 256, 3  # tokens of a program of `name_tokens`; of a list
TILE = {"TOKENS": 128, "num_warps": 4, "num_stages": 2}
H, G, D = (tl.constexpr(n) for n in (KV_HEADS, HEADS // KV_HEADS, HEAD_DIM))


@triton.jit
def name_tokens(
    before, owners, parents, fresh, keys, values, tokens, masks, counts, rows, place, room,
    BEAMS: tl.constexpr, ROOM: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Moves the table of owners (rows, room) to the new beams, lists what they see, and stores the new token."""
    request, first = tl.program_id(0), tl.program_id(1) * CHUNK
    beam, token = tl.arange(0, ROOM)[:, None], first + tl.arange(0, CHUNK)[None, :]
    row, live = request * BEAMS + beam, (beam < BEAMS) & (token <= place)
    parent = tl.load(parents + row, beam < BEAMS, 0)
    owner = tl.load(before + parent * room + token, live & (token < place), -1).to(tl.int32)
    owner = tl.where(live, tl.where(token == place, row, owner), -1 - beam)  # the idle ones are alone
    tl.store(owners + row * room + token, owner, live)
    same = (owner[:, None, :] == owner[None, :, :]).to(tl.int32)  # of beams i and j
    i, j = tl.arange(0, ROOM)[:, None, None], tl.arange(0, ROOM)[None, :, None]
    mask, chosen = tl.sum(same << j, 1), (tl.sum(tl.where(j < i, same, 0), 1) == 0) & live
    entry, mask, chosen = tl.ravel(owner * room + token), tl.ravel(mask), tl.ravel(chosen)
    rank = tl.cumsum(chosen.to(tl.int32), 0)
    at = request * BEAMS * room + tl.atomic_add(counts + request, tl.max(rank, 0)) + rank - 1
    tl.store(tokens + at, entry, chosen)
    tl.store(masks + at, mask, chosen)
    if (first <= place) & (place < first + CHUNK):
        number = tl.arange(0, H * D)[None, :]
        to = (row.to(tl.int64) * room + place) * (H * D) + number
        tl.store(keys + to, tl.load(fresh + row * (H * D) + number, beam < BEAMS, 0.0), beam < BEAMS)
        tl.store(values + to, tl.load(fresh + (rows + row) * (H * D) + number, beam < BEAMS, 0.0), beam < BEAMS)


@triton.jit
def attend(
    queries, seen, parents, keys, values, tokens, masks, counts, sums, totals, peaks, room,
    BEAMS: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """All queries of a request that share a key head, and a part of its list."""
    part, head, request, parts = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(0)
    row, dim = tl.arange(0, ROWS), tl.arange(0, D)[None, :]
    beam = row // G
    present, ancestor = beam < BEAMS, tl.load(parents + request * BEAMS + beam, beam < BEAMS, 0)
    within = ((head * G + row % G) * D)[:, None] + dim
    query = tl.load(queries + (request * BEAMS + beam)[:, None] * (H * G * D) + within, present[:, None], 0.0)
    query += tl.load(seen + ancestor[:, None] * (H * G * D) + within, present[:, None], 0.0)
    peak, total = tl.full((ROWS,), -1e30, tl.float32), tl.zeros((ROWS,), tl.float32)
    sum = tl.zeros((ROWS, D), tl.float32)
    count, listed = tl.load(counts + request), request * BEAMS * room
    share = tl.cdiv(tl.cdiv(count, TOKENS), parts) * TOKENS
    end = tl.minimum(part * share + share, count)
    for first in range(part * share, end, TOKENS):
        index = first + tl.arange(0, TOKENS)
        place = tl.load(tokens + listed + index, index < end, 0).to(tl.int64)
        mask = tl.load(masks + listed + index, index < end, 0)
        at = ((place * H + head) * D)[:, None] + dim
        key = tl.load(keys + at)
        value = tl.load(values + at)
        scores = tl.dot(query, tl.trans(key)) * (D**-0.5 * 1.4426950408889634)  # weights are powers of 2
        scores = tl.where((mask[None, :] >> beam[:, None] & 1) == 1, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weight, faded = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
        peak, total = higher, total * faded + tl.sum(weight, 1)
        sum = tl.dot(weight.to(value.dtype), value, sum * faded[:, None])
    slot = ((request * H + head) * parts + part) * ROWS + row
    tl.store(sums + slot[:, None] * D + dim, sum)
    tl.store(totals + slot, total)
    tl.store(peaks + slot, peak)


@triton.jit
def merge(sums, totals, peaks, out, BEAMS: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, POWER: tl.constexpr):
    """The attention of a query, from that of the parts of its request's list."""
    row, both, part = tl.program_id(0), tl.program_id(1), tl.arange(0, POWER)
    slot, dim = (both * PARTS + part) * ROWS + row, tl.arange(0, D)[None, :]
    peak = tl.load(peaks + slot, part < PARTS, -1e30)
    share = tl.exp2(peak - tl.max(peak, 0))
    total = tl.sum(share * tl.load(totals + slot, part < PARTS, 0.0), 0)
    sum = tl.sum(share[:, None] * tl.load(sums + slot[:, None] * D + dim, part[:, None] < PARTS, 0.0), 0)
    place = ((both // H * BEAMS + row // G) * H + both % H) * G + row % G
    tl.store(out + place * D + tl.arange(0, D), sum / total)


def prepare(queries: Tensor, caches: list[Tensor], fresh: Tensor, parents: Tensor) -> Step:
    (steps, requests, beams), room = parents.shape, caches[0].shape[1]
    rows, number = requests * beams, {"dtype": torch.int32, "device": parents.device}
    own = torch.arange(rows, **number)[:, None].repeat(1, room)
    tables, first = torch.empty(steps, rows, room, **number), torch.zeros_like(queries[0])
    tokens, masks = torch.empty(2, requests, beams * room, **number)
    counts = torch.empty(steps, requests, **number)
    power, groups = triton.next_power_of_2(beams), HEADS // KV_HEADS
    filled = max(16, power * groups)  # rows of a product: the queries that share a key head, of all beams
    slots, last = requests * KV_HEADS * PARTS * filled, (beams, filled, PARTS, triton.next_power_of_2(PARTS))
    sums, totals, peaks = (queries.new_empty(slots, n, dtype=torch.float32) for n in (HEAD_DIM, 1, 1))

    def step() -> Tensor:
        out, before, seen = torch.empty_like(queries), own, first
        counts.zero_()
        for index, (owners, count) in enumerate(zip(tables, counts)):
            place = room - steps + index
            table = before, owners, parents[index], fresh[index], *caches, tokens, masks, count
            name_tokens[requests, triton.cdiv(place + 1, CHUNK)](*table, rows, place, room, beams, power, CHUNK)
            given = queries[index], seen, parents[index], *caches, tokens, masks, count
            attend[PARTS, KV_HEADS, requests](*given, sums, totals, peaks, room, beams, filled, **TILE)
            before, seen = owners, out[index]
            merge[groups * beams, requests * KV_HEADS](sums, totals, peaks, seen, *last, num_warps=1)
        return out

    return step
