"""Every request's prompt is prefilled from its first token, though all begin with the same thousands of tokens."""

from collections import Counter

import numpy
import torch
from torch import Tensor

from common.models.caches import uncached
from common.models.decoder import Shape, Weights, draw_weights, forward, greedy
from common.models.references import planted
from common.models.timeline import Deliver, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

# Two blocks of Llama-3.1-8B, and a small vocabulary: the float64 reference passes every token of every request.
EIGHT_B = {"layers": 2, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}
BLOCK = 64  # tokens that are looked up together, by the variants that do
BATCH = 4  # requests that pass at a time, so that the states between the products fit a 24 GB card


def inputs(draw: Draw, shape: dict[str, int], prompts: int, requests: int, shared: int, own: int, dtype: str) -> Inputs:
    """Each request is one of a few system prompts, in no order, and a question of its own."""
    system = draw.integers(prompts, shared, high=shape["vocabulary"])
    whose = draw.permutation(requests) % prompts
    questions = draw.integers(requests, own, high=shape["vocabulary"])
    return {
        "weights": draw_weights(draw, Shape(**shape), getattr(torch, dtype)),
        "shape": Shape(**shape),
        "tokens": torch.cat([system[whose], questions], 1),
    }


def reference(weights: Weights, shape: Shape, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Each request's next token (requests), and the hidden state that chose it (requests, width)."""
    chosen, states = zip(*(planted(weights, shape, row, 1) for row in tokens))
    return torch.cat(chosen), torch.cat(states)


def cost(shape: dict[str, int], prompts: int, requests: int, shared: int, own: int, dtype: str) -> Cost:
    """Each distinct token passes once. A question sees the prompt and half of itself; attention is 4 FLOPs a number.

    The last block owes keys and values of all tokens, but the rest for each request's last token only.
    """
    network, unique = Shape(**shape), prompts * shared + requests * own
    seen = prompts * shared * (shared + 1) // 2 + requests * (own * shared + own * (own + 1) // 2)
    seen = (network.layers - 1) * seen + requests * (shared + own)
    blocks, head = network.layers * network.layer_weights, network.width * network.vocabulary
    return Cost(
        read=getattr(torch, dtype).itemsize * network.read_weights,
        flops=2 * (network.prompt_weights * (unique - requests) + (blocks + head) * requests)
        + 4 * network.width * seen,
        dtype="bf16",
        items=requests * (shared + own),
        unit="prompt tokens",
    )


def shared_blocks(tokens: numpy.ndarray) -> list[tuple[list[int], int]]:
    """Requests (rows) that share their deepest block, and how many blocks that makes. Each request is in one group.

    A block's name is its tokens and the number of the block before it, so that equal names mean equal prefixes. A
    request's last token is never in a shared block: its state is what is asked for.
    """
    numbers: dict[tuple[int, bytes], int] = {}
    chains = []
    for row in tokens:
        chain, data, size = [0], row.tobytes(), BLOCK * row.itemsize  # one copy of the row: slices of bytes are cheap
        for block in range((len(row) - 1) // BLOCK):
            name = chain[-1], data[block * size : (block + 1) * size]
            chain.append(numbers.setdefault(name, len(numbers) + 1))
        chains.append(chain[1:])
    uses = Counter(block for chain in chains for block in chain)
    groups: dict[int, tuple[list[int], int]] = {}
    for row, chain in enumerate(chains):
        shared = [block for block in chain if uses[block] > 1]
        groups.setdefault(shared[-1] if shared else 0, ([], len(shared)))[0].append(row)
    return list(groups.values())


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "prompts": 1, "requests": 8, "shared": 2048, "own": 64, "dtype": "bfloat16"},
        "cpu": {"shape": SMALL, "prompts": 1, "requests": 8, "shared": 256, "own": 23, "dtype": "float32"},
        "test": {"shape": SMALL, "prompts": 2, "requests": 5, "shared": 150, "own": 13, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights",),
    clock="end_to_end",
)


def prepare(weights: Weights, shape: Shape, tokens: Tensor) -> Metered:
    positions = torch.arange(tokens.shape[1], device=tokens.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        batches = [forward(weights, shape, part, positions, uncached())[:, -1] for part in tokens.split(BATCH)]
        states = torch.cat(batches)
        chosen = greedy(weights, states)
        deliver(range(len(tokens)))
        return chosen, states

    return metered(serve, tokens.device)
