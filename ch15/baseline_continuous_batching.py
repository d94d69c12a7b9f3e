"""A batch of requests runs until the longest of them has ended, and only then are the next ones admitted."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from common.models.caches import continuing, new_cache, prefilling
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.graphs import replayable
from common.models.lengths import ALPACA_ANSWER, SPREAD, length_mix
from common.models.references import planted
from common.models.timeline import Deliver, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

# Two blocks of Llama-3.1-8B, and a small vocabulary.
EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
ALPACA = {"mean": ALPACA_ANSWER, "spread": SPREAD, "longest": 128}
FEW = {"mean": 4.0, "spread": 1.0, "longest": 9}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


def inputs(draw: Draw, shape: dict[str, int], requests: int, slots: int, prompt: int, dtype: str, **mix: Any) -> Inputs:
    """How many tokens each request wants is known to the host, as a limit on its answer is to a server."""
    network, mixed = Shape(**shape), torch.tensor(length_mix(requests, **mix))
    weights = draw_weights(draw, network, getattr(torch, dtype))
    prompts, wanted = draw.integers(requests, prompt, high=shape["vocabulary"]), mixed[draw.permutation(requests).cpu()]
    return {"weights": weights, "shape": network, "prompt": prompts, "wanted": wanted, "slots": slots}


def reference(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Tokens (requests, most wanted), -1 after a request's last; and the hidden state that chose each last token."""
    tokens, states = prompt.new_full((len(prompt), int(wanted.max())), -1), []
    for row, (start, count) in enumerate(zip(prompt, wanted.tolist())):
        tokens[row, :count], hidden = planted(weights, shape, start, count)
        states.append(hidden[-1])
    return tokens, torch.stack(states)


def cost(shape: dict[str, int], requests: int, slots: int, prompt: int, dtype: str, **mix: Any) -> Cost:
    """As many steps as busy slots or the longest answer need; each reads all weights, and the cache before it."""
    network, counts, element = Shape(**shape), length_mix(requests, **mix), getattr(torch, dtype).itemsize
    decoded, passed = sum(counts) - requests, sum(counts) + (prompt - 1) * requests
    earlier = sum(prompt * (count - 1) + count * (count - 1) // 2 - (count - 1) for count in counts)
    blocks, head = network.layers * network.layer_weights, network.width * network.vocabulary
    steps = 1 + max(-(-decoded // slots), max(counts) - 1)
    return Cost(
        read=element * (network.read_weights * steps + network.kv_numbers * earlier),
        flops=2 * (blocks * passed + head * sum(counts)),
        dtype="bf16",
        passes=steps,
        items=sum(counts),
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "requests": 32, "slots": 16, "prompt": 32, **ALPACA, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "requests": 7, "slots": 3, "prompt": 5, **FEW, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights",),
    clock="end_to_end",
)


def serving(
    weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int, admits: Callable[[int], bool]
) -> Metered:
    """Serve all requests in order; `admits(idle)` says whether so many idle slots are filled before the next step."""
    (requests, start), longest = prompt.shape, int(wanted.max())
    cache = new_cache(shape, slots, start + longest, weights["head"])
    tokens = prompt.new_empty(requests + 1, longest + 1)  # the last row takes what idle slots write
    states = weights["head"].new_empty(requests + 1, shape.width)
    owner = prompt.new_full((slots,), requests)  # of each slot: its request, how many tokens it made, and the last one
    made, latest, limits = prompt.new_zeros(slots), prompt.new_zeros(slots), prompt.new_zeros(requests + 1)
    positions = torch.arange(start, device=prompt.device)

    def choose(rows: Tensor | slice, hidden: Tensor) -> None:
        who, count, chosen = owner[rows], made[rows], greedy(weights, hidden)
        tokens[who, count], states[who], latest[rows] = chosen, hidden, chosen
        owner[rows] = who.masked_fill(count + 1 >= limits[who], requests)
        made[rows] = (count + 1).clamp_(max=longest)

    def decode() -> None:
        here = made[:, None] + (start - 1)
        choose(slice(None), forward(weights, shape, latest[:, None], here, continuing(cache, here))[:, 0])

    decode_again = replayable(decode, prompt.device)  # one launch a step, for over a hundred operators

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        tokens.fill_(-1), owner.fill_(requests), made.zero_(), latest.zero_(), limits[:-1].copy_(wanted)
        counts, admitted, left, held = wanted.tolist(), 0, [0] * slots, [0] * slots
        while admitted < requests or any(left):
            idle = [slot for slot in range(slots) if not left[slot]][: requests - admitted]
            if idle and (admits(len(idle)) or not any(left)):
                rows, arrived = torch.tensor(idle, device=prompt.device), slice(admitted, admitted + len(idle))
                owner[rows], made[rows] = torch.arange(requests, device=prompt.device)[arrived], 0
                hidden = forward(weights, shape, prompt[arrived], positions, prefilling(cache, rows))
                choose(rows, hidden[:, -1])
                deliver(range(admitted, admitted + len(idle)))
                for slot in idle:
                    left[slot], held[slot], admitted = counts[admitted] - 1, admitted, admitted + 1
            if any(left):
                decode_again()
                deliver([request for request, more in zip(held, left) if more])
                left = [max(0, count - 1) for count in left]
        return tokens[:-1, :-1], states[:-1]

    return metered(serve, prompt.device)


def prepare(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> Metered:
    return serving(weights, shape, prompt, wanted, slots, admits=lambda idle: False)  # only when all slots are idle
