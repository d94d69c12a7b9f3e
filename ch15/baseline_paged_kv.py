"""Each request reserves a row of the cache as long as the longest that may come, however short it is."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.caches import Cache, new_cache
from common.models.decoder import Shape, Weights, draw_weights
from common.models.fused_decode import Decoder
from common.models.graphs import replayable
from common.models.lengths import SHAREGPT_ANSWER, SPREAD, length_mix
from common.models.references import planted
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
SHAREGPT = {"mean": SHAREGPT_ANSWER, "spread": SPREAD, "longest": 2032}  # and 16 new tokens: 2048
SMALL = {"layers": 1, "vocabulary": 97, "width": 128, "heads": 2, "kv_heads": 1, "hidden": 131}
FEW = {"mean": 50.0, "spread": 1.0, "longest": 90}  # more than attention takes at a time


def inputs(draw: Draw, shape: dict[str, int], requests: int, new: int, dtype: str, **mix: Any) -> Inputs:
    """Keys and values arrive packed, request after request; the multiset of lengths is the same in every draw."""
    network, mixed = Shape(**shape), torch.tensor(length_mix(requests, **mix))
    packed = network.layers, 2, int(mixed.sum()), network.kv_heads, network.head_dim
    return {
        "weights": draw_weights(draw, network, getattr(torch, dtype)),
        "shape": network,
        "lengths": mixed[draw.permutation(requests).cpu()],  # on the host, where a scheduler has them
        "latest": draw.integers(requests, high=network.vocabulary),
        "packed": draw.normal(*packed, dtype=getattr(torch, dtype)),
        "longest": mix["longest"] + new,
        "new": new,
    }


def reference(
    weights: Weights, shape: Shape, lengths: Tensor, latest: Tensor, packed: Tensor, longest: int, new: int
) -> tuple[Tensor, Tensor]:
    """The new tokens (requests, new), and the hidden states (requests, new, width) that chose them."""
    pasts = packed.split(lengths.tolist(), dim=2)
    tokens, states = zip(*(planted(weights, shape, one, new, past) for one, past in zip(latest[:, None], pasts)))
    return torch.stack(tokens), torch.stack(states)


def cost(shape: dict[str, int], requests: int, new: int, dtype: str, **mix: Any) -> Cost:
    """Steps of which each reads all weights, and the keys and values before it. What arrives need not be stored."""
    network, bytes_each = Shape(**shape), getattr(torch, dtype).itemsize
    earlier = new * sum(length_mix(requests, **mix)) + requests * sum(range(new))
    read, made = bytes_each * (new * network.read_weights + network.kv_numbers * earlier), requests * new
    return Cost(read=read, flops=2 * network.read_weights * made, dtype="bf16", passes=new, items=made, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={  # two blocks of Llama-3.1-8B, and a small vocabulary
        "bench": {"shape": EIGHT_B, "requests": 16, "new": 16, "dtype": "bfloat16", **SHAREGPT},
        "test": {"shape": SMALL, "requests": 3, "new": 2, "dtype": "float16", **FEW},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights",),
    clock="end_to_end",
    goal="memory",
)


def dealt(lengths: Tensor, page: int, span: int) -> tuple[Tensor, Tensor]:
    """Which pages each request holds (requests, span), and how many; requests take them in turn, as they grow."""
    counts = -(-lengths // page)
    held = torch.arange(span)[:, None] < counts
    return (held.flatten().cumsum(0) - 1).view(held.shape).T.contiguous(), counts


def store(cache: Cache, table: Tensor, lengths: Tensor, packed: Tensor) -> None:
    """Keys and values that arrive (layers, 2, tokens, kv_heads, head_dim) go to their requests' pages."""
    owner = torch.repeat_interleave(lengths)
    position = torch.arange(len(owner)) - (lengths.cumsum(0) - lengths)[owner]
    where = torch.stack([table[owner, position // cache.capacity], position % cache.capacity])
    page, slot = where.to(packed.device, non_blocking=True)
    for layer, both in enumerate(packed):
        for to, new in zip((cache.keys[layer], cache.values[layer]), both):
            to[page, :, slot] = new


def in_use(cache: Cache, lengths: Tensor) -> dict[str, float]:
    stores = [*cache.keys, *cache.values]
    used = int(lengths.sum()) * sum(to[0, :, 0].nbytes for to in stores)
    return {"cache held MB": sum(to.nbytes for to in stores) / 1e6, "cache used MB": used / 1e6}


def serving(
    page: int, weights: Weights, shape: Shape, lengths: Tensor, latest: Tensor, packed: Tensor, longest: int, new: int
) -> Metered:
    """Continue all requests, from pages of `page` tokens. One as long as the longest is a row, which needs no table."""
    pages, counts = dealt(lengths + new, page, -(-longest // page))
    cache = new_cache(shape, int(counts.sum()), page, packed)
    table, starts = (numbers.to(latest.device, torch.int32) for numbers in (pages, lengths + 1))
    asked = table if page < longest else None
    decoder = Decoder(weights, shape, len(latest), starts, new, cache=cache, table=asked)
    decode_again = replayable(decoder.advance, latest.device)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        pages, _ = dealt(lengths + new, page, table.shape[1])
        table.copy_(pages, non_blocking=True), starts.copy_(lengths + 1, non_blocking=True)
        store(cache, pages, lengths, packed)
        decoder.made.zero_(), decoder.stream.copy_(F.embedding(latest, weights["embedding"]))
        for _ in range(new):
            decode_again()
        return decoder.tokens, decoder.states

    return Metered(step, lambda: in_use(cache, lengths + new))


def prepare(longest: int, **given: Any) -> Metered:
    return serving(longest, longest=longest, **given)
