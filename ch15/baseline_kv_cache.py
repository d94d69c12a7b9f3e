"""For every new token the whole sequence so far goes through the model again, and all but its last state is dropped."""

import torch
from torch import Tensor

from common.models.caches import uncached
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.references import planted
from common.models.timeline import Deliver, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

# Two blocks of Llama-3.1-8B, and a small vocabulary: weights, their clone and their float64 copies fit a 24 GB card.
EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


def inputs(draw: Draw, shape: dict[str, int], batch: int, prompt: int, new: int, dtype: str) -> Inputs:
    return {
        "weights": draw_weights(draw, Shape(**shape), getattr(torch, dtype)),
        "shape": Shape(**shape),
        "prompt": draw.integers(batch, prompt, high=shape["vocabulary"]),
        "new": new,
    }


def reference(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> tuple[Tensor, Tensor]:
    """The new tokens (batch, new), and the hidden states (batch, new, width) that chose them."""
    tokens, states = zip(*(planted(weights, shape, row, new) for row in prompt))
    return torch.stack(tokens), torch.stack(states)


def cost(shape: dict[str, int], batch: int, prompt: int, new: int, dtype: str) -> list[Cost]:
    """Prefill, then steps of which each reads all weights and the cache before it.

    Of the last block a prompt needs the keys and values of all its tokens, but the rest for its last token only.
    """
    network, bytes_each = Shape(**shape), getattr(torch, dtype).itemsize
    weights, head = bytes_each * network.read_weights, network.width * network.vocabulary
    blocks = network.layers * network.layer_weights
    earlier = sum(range(prompt, prompt + new - 1))  # tokens that the steps find in the cache, a sequence
    needed = (prompt - 1) * network.prompt_weights + blocks + head
    prefill = Cost(read=weights, flops=2 * batch * needed, dtype="bf16", items=batch, unit="tokens")
    decode = Cost(
        read=(new - 1) * weights + bytes_each * batch * network.kv_numbers * earlier,
        flops=2 * batch * (blocks + head) * (new - 1),
        dtype="bf16",
        passes=new - 1,
        items=batch * (new - 1),
        unit="tokens",
    )
    return [prefill, decode]


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "batch": 8, "prompt": 256, "new": 16, "dtype": "bfloat16"},
        "test": {"shape": SMALL, "batch": 3, "prompt": 7, "new": 5, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights",),
    clock="end_to_end",
    rungs="cached graph",
)


def prepare(weights: Weights, shape: Shape, prompt: Tensor, new: int) -> Metered:
    end = prompt.shape[1] + new
    tokens = prompt.new_empty(len(prompt), end)
    positions = torch.arange(end, device=prompt.device).expand_as(tokens)
    states = weights["head"].new_empty(len(prompt), new, shape.width)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        tokens[:, :-new] = prompt
        for index, length in enumerate(range(end - new, end)):
            hidden = forward(weights, shape, tokens[:, :length], positions[:, :length], uncached())
            states[:, index] = hidden[:, -1]
            tokens[:, length] = greedy(weights, states[:, index])
            deliver(range(len(prompt)))
        return tokens[:, -new:], states

    return metered(serve, prompt.device)
