"""The target model passes once for every token, and each pass reads all its weights for one token's sake."""

import torch
from torch import Tensor
from torch.nn import functional as F

from common.models.caches import continuing, new_cache, prefilling
from common.models.decoder import Shape, Weights, draw_weights, forward
from common.models.graphs import replayable
from common.models.references import planted
from common.models.timeline import Deliver, metered
from common.python.workload import Cost, Draw, Inputs, Metered, Workload

# Six blocks of Llama-3.1-8B, and a small vocabulary; the draft is one block of a quarter of the width.
TARGET = {"layers": 6, "vocabulary": 32000, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
DRAFT = {"layers": 1, "vocabulary": 32000, "width": 1024, "heads": 8, "kv_heads": 2, "hidden": 3584}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}
SMALLER = {"layers": 1, "vocabulary": 97, "width": 48, "heads": 3, "kv_heads": 1, "hidden": 67}
AGREED = 0.8  # of the tokens the draft has the target's successor, for the others another


def inputs(draw: Draw, target: dict[str, int], draft: dict[str, int], prompt: int, new: int, dtype: str) -> Inputs:
    """Gumbel noise is an input: the token with the greatest sum of logit and noise is a sample of the softmax."""
    shapes, kept = (Shape(**target), Shape(**draft)), (draw.kept.get("weights"), draw.kept.get("draft"))
    weights, guesses = (old or draw_weights(draw, each, getattr(torch, dtype)) for old, each in zip(kept, shapes))
    vocabulary, chain = shapes[0].vocabulary, weights["successor"]  # a prompt is chosen for the weights that stay
    if not draw.kept:
        others, successor = draw.permutation(vocabulary)[int(AGREED * vocabulary) :], chain.clone()
        successor[others] = successor[others.roll(1)]
        guesses["head"][successor], guesses["successor"] = guesses["embedding"], successor
    given = draw.integers(1, prompt, high=vocabulary)
    given[:, -1] = start_of(chain, guesses["successor"] != chain, draw.permutation(vocabulary), new)
    noise = -(-draw.uniform(new, vocabulary, low=1e-6, high=1.0).clamp_(max=1 - 1e-6).log()).log()
    return {"weights": weights, "shapes": shapes, "draft": guesses, "prompt": given, "noise": noise}


def wrong_guesses(new: int) -> int:
    """How many guesses of an answer's second to last token are wrong. The first's would be too; the last's is right."""
    return round((new - 1) * (1 - AGREED))


def start_of(successor: Tensor, wrong: Tensor, tokens: Tensor, new: int) -> Tensor:
    """Of `tokens`, the first whose `new` successors have so many wrong guesses, or the one that comes nearest."""
    token, count = tokens, torch.zeros_like(tokens)
    for _ in range(new - 1):
        token = successor[token]
        count += wrong[token]
    return tokens[((count - wrong_guesses(new)).abs() + wrong[token] + ~wrong[tokens]).sort(stable=True).indices[0]]


def reference(
    weights: Weights, shapes: tuple[Shape, Shape], draft: Weights, prompt: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Tokens (new) that the target samples with this noise, and its hidden states (new, width) that chose them."""
    tokens, hidden = planted(weights, shapes[0], prompt[0], len(noise))
    if not torch.equal((hidden @ weights["head"].T + noise).argmax(-1), tokens):
        raise ValueError("the noise outweighs the planted margin: the width is too small")
    return tokens, hidden


def cost(target: dict[str, int], draft: dict[str, int], prompt: int, new: int, dtype: str) -> Cost:
    """One pass with the prompt, one that ends at each wrong guess, and one for the right guesses behind the last."""
    network, passes = Shape(**target), 2 + wrong_guesses(new)
    read = getattr(torch, dtype).itemsize * passes * network.read_weights
    flops = 2 * (network.layers * network.layer_weights * (prompt + new - 1) + network.width * network.vocabulary * new)
    return Cost(read=read, flops=flops, dtype="bf16", passes=passes, items=new, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"target": TARGET, "draft": DRAFT, "prompt": 64, "new": 32, "dtype": "bfloat16"},
        "test": {"target": SMALL, "draft": SMALLER, "prompt": 7, "new": 19, "dtype": "float32"},
    },
    tolerance=2e-2,  # of bf16 through all blocks
    frozen=("weights", "draft"),
    clock="end_to_end",
    rungs="eager_passes compiled_passes",
)


def sample(weights: Weights, hidden: Tensor, noise: Tensor) -> Tensor:
    """The token of each state (..., width) with the greatest sum of logit and noise (..., vocabulary)."""
    return (F.linear(hidden, weights["head"]).float() + noise).argmax(-1)


def prepare(weights: Weights, shapes: tuple[Shape, Shape], draft: Weights, prompt: Tensor, noise: Tensor) -> Metered:
    shape, start, new, head = shapes[0], prompt.shape[1], len(noise), weights["head"]
    cache = new_cache(shape, 1, start + new, head)
    tokens, states = prompt.new_empty(new), head.new_empty(new, shape.width)
    made, latest = prompt.new_zeros(1), prompt.new_zeros(1)
    positions = torch.arange(start, device=prompt.device)[None]

    def choose(hidden: Tensor) -> None:
        latest.copy_(sample(weights, hidden, noise[made]))
        tokens[made], states[made] = latest, hidden
        made.add_(1)

    def decode() -> None:
        here = made[None] + (start - 1)
        choose(forward(weights, shape, latest[None], here, continuing(cache, here))[0])

    def prefill() -> None:
        made.zero_()
        choose(forward(weights, shape, prompt, positions, prefilling(cache))[0, -1:])

    prefill_again, decode_again = replayable(prefill, prompt.device), replayable(decode, prompt.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        prefill_again()
        deliver([0])
        for _ in range(new - 1):
            decode_again()
            deliver([0])
        return tokens, states

    return metered(serve, prompt.device)
