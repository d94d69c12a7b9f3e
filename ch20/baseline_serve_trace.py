"""Requests pass in fixed batches: each has room for the longest answer, and all wait until the last of them ends."""

from typing import Any

import torch
from torch import Tensor

from common.models.caches import continuing_pages, new_cache
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.graphs import replayable
from common.models.lengths import SPREAD, length_mix
from common.models.references import planted
from common.models.timeline import Arrived, Deliver, Passes, interactive, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

EIGHT_B = {"layers": 2, "vocabulary": 8064, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
SMALL = {"layers": 2, "vocabulary": 67, "width": 60, "heads": 6, "kv_heads": 2, "hidden": 71}
ALPACA, FEW = {"mean": 14.6, "longest": 64}, {"mean": 4.0, "longest": 5}  # a quarter of Alpaca's answers


def inputs(draw: Draw, shape: dict[str, int], requests: int, room: int, prompt: int, dtype: str, **mix: Any) -> Inputs:
    """`room` is how many tokens' keys and values memory holds. The host knows how long each answer is."""
    network, mixed = Shape(**shape), torch.tensor(length_mix(requests, **mix, spread=SPREAD))
    weights = draw_weights(draw, network, getattr(torch, dtype))
    prompts, wanted = draw.integers(requests, prompt, high=shape["vocabulary"]), mixed[draw.permutation(requests).cpu()]
    return {"weights": weights, "shape": network, "prompts": prompts, "wanted": wanted, "room": room}


def reference(weights: Weights, shape: Shape, prompts: Tensor, wanted: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Tokens (requests, most wanted), -1 after a request's last; and the hidden state that chose each last token."""
    made = [planted(weights, shape, prompt, count) for prompt, count in zip(prompts, wanted.tolist())]
    tokens = torch.nn.utils.rnn.pad_sequence([own for own, _ in made], batch_first=True, padding_value=-1)
    return tokens, torch.stack([hidden[-1] for _, hidden in made])


def cost(shape: dict[str, int], requests: int, room: int, prompt: int, dtype: str, **mix: Any) -> Cost:
    """As many passes as the longest answer or the room need; each reads all weights, and the cache before it."""
    network, counts, size = Shape(**shape), length_mix(requests, **mix, spread=SPREAD), getattr(torch, dtype).itemsize
    held = sum(count * prompt + count * (count - 1) // 2 for count in counts)  # tokens, over all passes
    passes, weights = max(*counts, -(-held // room)), network.read_weights
    read = weights * passes + network.kv_numbers * (held - prompt * requests)
    flops = 2 * (weights * sum(counts) + network.layers * network.layer_weights * (prompt - 1) * requests)
    return Cost(read=size * read, flops=flops, dtype="bf16", passes=passes, items=sum(counts), unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "requests": 200, "room": 2048, "prompt": 16, **ALPACA, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "requests": 5, "room": 32, "prompt": 5, **FEW, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights",),
    clock="end_to_end",
    rungs="continuous paged chunked graph longest_first",
)


def passes(counts: list[int], prompt: int, page: int, table: list[list[int]], rows: int, admit: str,
           arrived: Arrived | None) -> Passes:  # fmt: skip
    """Request and position of the tokens that pass together: prompts' tokens behind the others, `rows` at most; without
    `rows`, prompts pass alone. `table` gets each request's pages, and its last row keeps the free ones. The `longest`
    or `first` request that has `arrived` is next, when its pages are free; in `batches`, only when nothing runs."""
    running, waiting, came = dict[int, int](), list[int](), 0  # the next position of each request that runs
    while came < len(counts) or waiting or running:
        waiting += range(came, came := arrived(came + (not waiting and not running)) if arrived else len(counts))
        waiting.sort(key=counts.__getitem__ if admit == "longest" else int.__neg__)
        while waiting and not (admit == "batches" and any(running.values())):
            if (need := -(-(prompt + counts[waiting[-1]]) // page)) > len(table[-1]):
                break
            table[waiting[-1]], table[-1] = table[-1][:need], table[-1][need:]
            running[waiting.pop()] = 0
        decoding = [(request, at) for request, at in running.items() if at >= prompt]
        arriving = [(request, at) for request, start in running.items() for at in range(start, prompt)]
        yield (together := (decoding + arriving)[:rows] if rows else arriving or decoding)
        for request, at in together:
            running[request] = at + 1
            if at + 2 == prompt + counts[request]:
                table[-1] += table[request]
                del running[request]


def serving(weights: Weights, shape: Shape, prompts: Tensor, wanted: Tensor, room: int, page: int = 0, rows: int = 0,
            admit: str = "first", graph: bool = False) -> Metered:  # fmt: skip
    (requests, prompt), longest = prompts.shape, int(wanted.max())
    pages, width = room // (page := page or prompt + longest), -(-(prompt + longest) // page)
    pool = new_cache(shape, pages + 1, page, weights["head"])  # the last page takes what nobody reads, as the last row
    table, ends = prompts.new_full((requests + 1, width), pages), prompts.new_zeros(requests + 1)
    sequence, plan = prompts.new_zeros(requests + 1, prompt + longest), prompts.new_zeros(2, rows)
    states = pool.keys[0].new_empty(requests + 1, shape.width)

    def work(who: Tensor, at: Tensor) -> None:
        attend = continuing_pages(pool, table[who], at[:, None])
        hidden = forward(weights, shape, sequence[who, at][:, None], at[:, None], attend)[:, 0]
        sequence[who, at + 1] = torch.where(at + 1 < prompt, sequence[who, at + 1], greedy(weights, hidden))
        states[torch.where(at + 2 == ends[who], who, requests)] = hidden

    again = replayable(lambda: work(*plan), prompts.device) if graph else None

    @torch.inference_mode()
    def serve(deliver: Deliver, arrived: Arrived | None = None) -> tuple[Tensor, Tensor]:
        owned = [list[int]() for _ in range(requests)] + [list(range(pages))]
        order = passes(wanted.tolist(), prompt, page, owned, rows, admit, arrived)
        ends[:-1], sequence[:-1, :prompt], sequence[:-1, prompt:] = wanted + prompt, prompts, -1
        for known in ([each] for each in order) if arrived else [list(order)]:  # all passes, when all requests are here
            table[:-1] = torch.tensor([own + [pages] * (width - len(own)) for own in owned[:-1]]).to(table)
            tokens = torch.cat([torch.tensor(each + [(requests, 0)] * (rows - len(each))) for each in known]).T.to(plan)
            for together, part in zip(known, tokens.split([max(rows, len(each)) for each in known], 1)):
                part = plan.copy_(part) if rows else part
                again() if again else work(*part)
                deliver([request for request, at in together if at + 1 >= prompt])
        return sequence[:-1, prompt:], states[:-1]

    return metered(serve, prompts.device, interactive(requests))


def prepare(weights: Weights, shape: Shape, prompts: Tensor, wanted: Tensor, room: int) -> Metered:
    return serving(weights, shape, prompts, wanted, room, admit="batches")
