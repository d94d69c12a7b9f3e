"""A batch of requests runs until the longest of them has ended, and only then are the next ones admitted."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.caches import compiled_prefill
from common.models.decoder import Shape, Weights, draw_weights
from common.models.fused_decode import Decoder
from common.models.graphs import replayable
from common.models.lengths import ALPACA_ANSWER, SPREAD, length_mix
from common.models.references import planted
from common.models.timeline import Deliver, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
ALPACA, FEW = {"mean": ALPACA_ANSWER, "spread": SPREAD, "longest": 128}, {"mean": 4.0, "spread": 1.0, "longest": 5}
SMALL = {"layers": 2, "vocabulary": 67, "width": 60, "heads": 6, "kv_heads": 2, "hidden": 71}


def inputs(draw: Draw, shape: dict[str, int], requests: int, slots: int, prompt: int, dtype: str, **mix: Any) -> Inputs:
    """How many tokens each request wants is known to the host, as a limit on its answer is to a server."""
    network, mixed = Shape(**shape), torch.tensor(length_mix(requests, **mix))
    weights = draw_weights(draw, network, getattr(torch, dtype))
    prompts, wanted = draw.integers(requests, prompt, high=shape["vocabulary"]), mixed[draw.permutation(requests).cpu()]
    return {"weights": weights, "shape": network, "prompt": prompts, "wanted": wanted, "slots": slots}


def reference(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Tokens (requests, most wanted), -1 after a request's last; and the hidden state that chose each last token."""
    made = [planted(weights, shape, start, count) for start, count in zip(prompt, wanted.tolist())]
    tokens = torch.nn.utils.rnn.pad_sequence([own for own, _ in made], batch_first=True, padding_value=-1)
    return tokens, torch.stack([hidden[-1] for _, hidden in made])


def cost(shape: dict[str, int], requests: int, slots: int, prompt: int, dtype: str, **mix: Any) -> Cost:
    """As many steps as busy slots or the longest answer need; each reads all weights, and the cache before it."""
    network, counts, element = Shape(**shape), length_mix(requests, **mix), getattr(torch, dtype).itemsize
    decoded = sum(counts) - requests
    earlier = sum(prompt * (count - 1) + count * (count - 1) // 2 - (count - 1) for count in counts)
    steps = 1 + max(-(-decoded // slots), max(counts) - 1)
    read = element * (network.read_weights * steps + network.kv_numbers * earlier)
    flops = 2 * (network.prompt_weights * (prompt - 1) * requests + network.read_weights * sum(counts))
    return Cost(read=read, flops=flops, dtype="bf16", passes=steps, items=sum(counts), unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={  # two blocks of Llama-3.1-8B, and a small vocabulary
        "bench": {"shape": EIGHT_B, "requests": 32, "slots": 16, "prompt": 32, **ALPACA, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "requests": 5, "slots": 3, "prompt": 5, **FEW, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights",),
    clock="end_to_end",
    rungs="at_once in_order",
)


def serving(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int,
            admits: Callable[[int], bool], longest_first: bool = False) -> Metered:  # fmt: skip
    """Serve all requests; `admits(idle)` says whether so many idle slots are filled before the next step."""
    (requests, start), longest, device = prompt.shape, int(wanted.max()), prompt.device
    positions, decoder = torch.arange(start, device=device), Decoder(weights, shape, slots, start, longest + 1)
    tokens, states = prompt.new_empty(requests + 1, longest + 1), decoder.states.new_empty(requests + 1, shape.width)
    limits, owner = prompt.new_zeros(requests + 1), prompt.new_full((slots,), requests)  # which is no request
    arriving, every = prompt.new_zeros(slots, 2), torch.arange(slots, device=device)  # slots, and their next requests
    prompts = compiled_prefill(weights, shape, decoder.cache, __file__)

    def collect(rows: Tensor) -> None:
        """What these slots have made goes to their requests."""
        who = owner[rows]
        tokens[who], states[who] = decoder.tokens[rows], decoder.states[rows, limits[who] - 1]

    def prefill(count: int) -> None:
        """Keys and values of prompts; the next step takes their last tokens once more, and chooses after them."""
        rows, which = arriving[:count].T
        collect(rows)
        prompts(prompt[which], positions, rows)
        owner[rows], decoder.stream[rows] = which, F.embedding(prompt[which, -1], weights["embedding"]).float()
        decoder.made.index_fill_(0, rows, 0)

    prefills = {size: replayable(partial(prefill, size), device) for size in sorted({1, min(4, slots), slots})}
    decode_again = replayable(decoder.advance, device)  # an idle slot goes on

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        owner.fill_(requests), decoder.made.zero_(), limits[:-1].copy_(wanted)
        counts, left, held = wanted.tolist(), [0] * slots, [0] * slots
        waiting = sorted(range(requests), key=lambda request: -counts[request] if longest_first else request)
        while waiting or any(left):
            idle = [slot for slot in range(slots) if not left[slot]][: len(waiting)]
            if idle and (admits(len(idle)) or not any(left)):
                size = next(size for size in prefills if size >= len(idle))
                pairs = list(zip(idle, waiting))
                both = torch.tensor(pairs + pairs[-1:] * (size - len(idle)))  # the last pair fills what is left
                arriving[:size].copy_(both.pin_memory() if arriving.is_cuda else both, non_blocking=True)
                prefills[size]()
                for slot, request in pairs:
                    left[slot], held[slot] = counts[request], request
                waiting = waiting[len(pairs) :]
            decode_again()
            deliver([request for request, more in zip(held, left) if more])
            left = [max(0, count - 1) for count in left]
        collect(every)
        return tokens[:-1, :-1].masked_fill(torch.arange(longest, device=device) >= limits[:-1, None], -1), states[:-1]

    return metered(serve, device)


def prepare(weights: Weights, shape: Shape, prompt: Tensor, wanted: Tensor, slots: int) -> Metered:
    return serving(weights, shape, prompt, wanted, slots, admits=lambda idle: False)  # only when all slots are idle
