"""A small draft proposes eight tokens and the target checks all in one pass; a round is one graph of fused kernels.

Both choose with the same noise for the same place, so a proposal is kept exactly when the target chooses it too, and
the tokens are those of the target alone, whatever the draft: its distribution is untouched.
"""

from math import ceil

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch16.baseline_speculative_decoding import workload as workload
from common.models.caches import causal_attention
from common.models.codes import own
from common.models.decoder import Shape, Weights, block, turns
from common.models.fused_decode import ROWS, Decoder, Tile
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(gpus=1)  # in Triton's interpreter the proof takes minutes

PROPOSED = 8
# Tuned on an H200 by the time of a whole pass.
TILES_OF_DRAFT = {"qkv": Tile(outputs=32, columns=256, stages=3, warps=2), "out": Tile(shares=8), "gate_up": Tile()}
TILES_OF_DRAFT |= {"down": Tile(shares=7), "head": Tile(columns=64, stages=3)}


@triton.jit
def settle(  # type: ignore[no-untyped-def]
    guesses, tokens, drafted, checked, stream, embedding, columns, proposed, rows, WIDTH: tl.constexpr
):
    """The proposals before the first wrong one stand. Behind them the target's own choice is the latest token."""
    row, at = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    made, asked = tl.load(checked) - 1, row < proposed  # the choice has moved the count on by one
    right = tl.load(guesses + made + row, mask=asked, other=-1) == tl.load(tokens + made + row, mask=asked, other=-2)
    kept = tl.min(tl.where(right, ROWS, row), axis=0)
    latest, now = tl.load(tokens + made + kept), made + kept + 1
    tl.store(guesses + now - 1, latest)
    tl.store(drafted, now)
    tl.store(checked + row, now + row, mask=row < rows)
    begun = tl.load(embedding + latest * columns + at, mask=at < columns, other=0.0)
    tl.store(stream + at, begun.to(tl.float32), mask=at < columns)


def through(layer: Weights, shape: Shape, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """A whole prompt through a block, whose keys and values are kept."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys[:, :, : k.shape[1]], values[:, :, : v.shape[1]] = k.transpose(1, 2), v.transpose(1, 2)
        return causal_attention(q, k, v)

    return block(layer, shape, x, cos, sin, attend)


def prepare(weights: Weights, shapes: tuple[Shape, Shape], draft: Weights, prompt: Tensor, noise: Tensor) -> Metered:
    (shape, smaller), start, new, rows = shapes, prompt.shape[1], len(noise), PROPOSED + 1
    room = new + rows  # what is checked may reach beyond the last token that is wanted
    target = Decoder(weights, shape, rows, start, room, noise=noise, together=True)
    drafter = Decoder(draft, smaller, 1, start, room, TILES_OF_DRAFT, noise)
    positions, ahead = torch.arange(start, device=prompt.device)[None], torch.arange(rows, device=prompt.device)
    compiled = torch.compile(own(through, __file__), fullgraph=True, dynamic=False)

    def settled(proposed: int) -> None:
        settle[(1,)](
            drafter.tokens, target.tokens, drafter.made, target.made, drafter.stream, draft["embedding"],
            smaller.width, proposed, rows, triton.next_power_of_2(smaller.width), num_warps=1,
        )  # fmt: skip

    def begin() -> None:
        for decoder in (drafter, target):
            x = F.embedding(prompt, decoder.weights["embedding"])
            cos, sin = turns(decoder.shape, positions, x.dtype)
            for layer, keys, values in zip(decoder.weights["layers"], decoder.cache.keys, decoder.cache.values):
                x = compiled(layer, decoder.shape, x, cos, sin, keys, values)
        target.stream.copy_(x[:, -1])  # of the rows the first alone counts
        target.made.copy_(ahead)
        target.choose()
        settled(0)

    def pass_round() -> None:
        for _ in range(PROPOSED):
            drafter.advance()
        for layer in range(smaller.layers):
            drafter.block(layer)  # if all are kept, the draft has to have seen the last as well
        given = drafter.tokens[0, target.made - 1]
        target.stream.copy_(F.embedding(given, weights["embedding"]))
        target.advance()
        settled(PROPOSED)

    begin_again, round_again = (replayable(work, prompt.device) for work in (begin, pass_round))

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        begin_again()
        deliver([0])
        count = 1
        while count < new:
            for _ in range(ceil((new - count) / rows)):  # as many as are needed even if all are kept
                round_again()
            before, count = count, int(drafter.made)
            deliver([0] * (min(count, new) - before))
        return target.tokens[0, :new], target.states[0, :new]

    return metered(serve, prompt.device)
