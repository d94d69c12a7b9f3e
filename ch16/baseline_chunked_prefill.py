"""A long prompt passes alone and all running streams wait; then they decode, a few rows for each read of weights."""

from functools import partial

import torch
from torch import Tensor

from common.models.caches import Cache, continuing, new_cache, prefilling
from common.models.codes import own
from common.models.decoder import Shape, Turning, Weights, draw_weights, forward, greedy, turns
from common.models.graphs import replayable
from common.models.references import hidden_states, planted
from common.models.timeline import Deliver, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

Layers = list[Tensor]
# Two blocks of Llama-3.1-8B, and a small vocabulary.
EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


@torch.no_grad()
def filled(weights: Weights, shape: Shape, history: Tensor, steps: int) -> Cache:
    """A cache of all but the last token of each stream, with room for that one and what follows."""
    cache = new_cache(shape, len(history), history.shape[1] + steps, weights["head"])
    positions = torch.arange(history.shape[1] - 1, device=history.device)
    forward(weights, shape, history[:, :-1], positions.expand(len(history), -1), prefilling(cache))
    return cache


def inputs(
    draw: Draw, shape: dict[str, int], prompt: int, streams: int, history: int, steps: int, dtype: str
) -> Inputs:
    """A prompt (1, length) that arrives, and streams (streams, history) that run, with what is cached of them."""
    weights, words = draw_weights(draw, Shape(**shape), getattr(torch, dtype)), shape["vocabulary"]
    tokens = draw.integers(streams, history, high=words)
    return {
        "weights": weights,
        "shape": Shape(**shape),
        "prompt": draw.integers(1, prompt, high=words),
        "streams": tokens,
        "steps": steps,
        **vars(filled(weights, Shape(**shape), tokens, steps)),  # keys and values, by layer
    }


def reference(
    weights: Weights, shape: Shape, prompt: Tensor, streams: Tensor, keys: Layers, values: Layers, steps: int
) -> tuple[Tensor, ...]:
    """Each stream's next tokens (streams, steps), the states that chose them, the prompt's last state (1, width)."""
    tokens, states = zip(*(planted(weights, shape, row, steps) for row in streams))
    return torch.stack(tokens), torch.stack(states), hidden_states(weights, shape, prompt[0])[-1:]


def cost(shape: dict[str, int], prompt: int, streams: int, history: int, steps: int, dtype: str) -> Cost:
    """All tokens' products; a stream's steps follow each other, and each reads all weights. Attention is left out.
    The last block owes keys and values of the whole prompt, but the rest for its last token only."""
    network, decoded = Shape(**shape), streams * steps
    blocks, head = network.layers * network.layer_weights, network.width * network.vocabulary
    return Cost(
        read=getattr(torch, dtype).itemsize * network.read_weights * steps,
        flops=2 * (network.prompt_weights * (prompt - 1) + blocks * (1 + decoded) + head * decoded),
        dtype="bf16",
        passes=steps,
        items=prompt + decoded,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "prompt": 2048, "streams": 64, "history": 128, "steps": 8, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "prompt": 29, "streams": 3, "history": 7, "steps": 5, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    mutates=("keys", "values"),
)


def passed(weights: Weights, shape: Shape, tokens: Tensor, positions: Tensor, turning: Turning, cache: Cache) -> Tensor:
    """The state of each row's last token: of a prompt, or of the one token that a stream has new."""
    attend = prefilling(cache) if tokens.shape[1] > 1 else continuing(cache, positions)
    return forward(weights, shape, tokens, turning, attend)[:, -1]


def prepare(
    weights: Weights, shape: Shape, prompt: Tensor, streams: Tensor, keys: Layers, values: Layers, steps: int
) -> Metered:
    (count, history), device = streams.shape, prompt.device
    cache = new_cache(shape, 1, prompt.shape[1], weights["head"])
    tokens, states = streams.new_empty(count, steps), keys[0].new_empty(count, steps, shape.width)
    latest, arrived = streams.new_empty(count, 1), states.new_empty(1, shape.width)
    fused = torch.compile(own(passed, __file__), fullgraph=True, dynamic=False, disable=not prompt.is_cuda)
    places = torch.arange(max(prompt.shape[1], history + steps), device=device)[None]
    cos, sin = turns(shape, places, states.dtype)

    def run(new: Tensor, start: int, kept: Cache) -> Tensor:
        at = slice(start, start + new.shape[1])
        return fused(weights, shape, new, places[:, at].expand(len(new), -1), (cos[:, at], sin[:, at]), kept)

    def arrive() -> None:
        arrived[:], latest[:] = run(prompt, 0, cache), streams[:, -1:]

    def follow(index: int) -> None:
        states[:, index] = run(latest, history - 1 + index, Cache(keys, values))
        latest[:, 0] = tokens[:, index] = greedy(weights, states[:, index])

    again = [replayable(work, device) for work in (arrive, *(partial(follow, index) for index in range(steps)))]

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, ...]:
        for index, replay in enumerate(again):
            replay()
            deliver(range(count) if index else [count])
        return tokens, states, arrived

    return metered(serve, device)
