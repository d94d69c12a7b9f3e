"""A small draft proposes six tokens and the target checks all in one pass; the passes of both are compiled.

Both choose with the same noise for the same place, so a proposal is kept exactly when the target chooses it too, and
the tokens are those of the target alone, whatever the draft: its distribution is untouched.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ch16.baseline_speculative_decoding import sample
from ch16.baseline_speculative_decoding import workload as workload
from common.models.caches import Cache, appending, new_cache
from common.models.codes import own
from common.models.decoder import EPSILON, Shape, Weights, block, turns
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)  # on a CPU the compiler takes more than a minute

PROPOSED = 6


def begun(weights: Weights, shape: Shape, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x = F.embedding(tokens, weights["embedding"])
    return x, *turns(shape, positions, x.dtype)


def through(
    layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, at: Tensor
) -> Tensor:
    return block(layer, shape, x, cos, sin, appending(keys, values, at))


def settled(weights: Weights, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The sampled tokens (length) of one sequence, and the normed states that they are read from."""
    hidden = F.rms_norm(x[0], x.shape[-1:], weights["norm"], EPSILON)
    return sample(weights, hidden, noise), hidden


def parts(owner: str) -> list[Callable[..., Any]]:
    """A pass in three parts, compiled for this owner: torch keeps eight forms of a function, and prompts add theirs."""
    return [torch.compile(own(code, owner), fullgraph=True, dynamic=False) for code in (begun, through, settled)]


def advance(
    compiled: list[Callable[..., Any]],
    weights: Weights,
    shape: Shape,
    cache: Cache,
    given: Tensor,
    here: Tensor,
    noise: Tensor,
) -> tuple[Tensor, Tensor]:
    """Choices (places of the noise) and states of the last of the tokens given (1, length), with this noise."""
    opening, middle, ending = compiled
    x, cos, sin = opening(weights, shape, given, here)
    for layer, keys, values in zip(weights["layers"], cache.keys, cache.values):
        x = middle(layer, shape, x, cos, sin, keys, values, here)
    chosen: tuple[Tensor, Tensor] = ending(weights, x[:, -len(noise) :], noise)
    return chosen


def prepare(weights: Weights, shapes: tuple[Shape, Shape], draft: Weights, prompt: Tensor, noise: Tensor) -> Metered:
    (shape, smaller), start, new, head = shapes, prompt.shape[1], len(noise), weights["head"]
    room = new + PROPOSED + 1  # what is checked may reach beyond the last token that is wanted
    caches = [new_cache(each, 1, start + room, head) for each in shapes]
    tokens, states = prompt.new_empty(room), head.new_empty(room, shape.width)
    made, window = prompt.new_ones(1), prompt.new_zeros(1, PROPOSED + 2)  # the latest two tokens, then the proposed
    positions, ahead = torch.arange(start, device=prompt.device)[None], torch.arange(PROPOSED + 2, device=prompt.device)
    compiled, of_prompts = parts(__file__), parts(f"{__file__}: prompts")

    def begin() -> None:
        chosen, hidden = advance(of_prompts, weights, shape, caches[0], prompt, positions, noise[:1])
        advance(of_prompts, draft, smaller, caches[1], prompt, positions, noise[:1])
        window[0, :2] = torch.cat([prompt[0, -1:], chosen])
        tokens[:1], states[:1] = window[0, 1:2], hidden
        made.fill_(1)

    def propose() -> None:
        for last in range(1, PROPOSED + 1):
            part = slice(last if last > 1 else 0, last + 1)  # at first two: if all were kept, the draft lacks both
            here = made[None] + (start - 2) + ahead[part]
            at = (made + last - 1).clamp(max=new - 1)
            window[:, last + 1], _ = advance(
                compiled, draft, smaller, caches[1], window[:, part].contiguous(), here, noise[at]
            )

    def check() -> None:
        places, here = made + ahead[:-1], made[None] + (start - 2) + ahead[1:]
        given = window[:, 1:].contiguous(), here, noise[places.clamp(max=new - 1)]
        chosen, hidden = advance(compiled, weights, shape, caches[0], *given)
        kept = (chosen[:-1] == window[0, 2:]).cumprod(0).sum(0, keepdim=True)  # proposals before the first wrong one
        tokens[places], states[places] = chosen, hidden
        window[0, :2] = torch.cat([window[0, kept + 1], chosen[kept]])
        made.add_(kept + 1)

    begin_again, propose_again, check_again = (replayable(work, prompt.device) for work in (begin, propose, check))

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        begin_again()
        deliver([0])
        count = 1
        while count < new:
            certain = ceil((new - count) / (PROPOSED + 1))  # so many are needed though all be kept: nothing to wait for
            for again in (propose_again, check_again) * certain:
                again()
            before, count = count, int(made)
            deliver([0] * (min(count, new) - before))
        return tokens[:new], states[:new]

    return metered(serve, prompt.device)
