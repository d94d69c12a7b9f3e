"""Bits of tokens and states stay on the GPU, looked up where a logit is read."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch16.baseline_guided_mask import following
from ch16.baseline_guided_mask import workload as workload
from common.models.graphs import replayable
from common.python.workload import Step

PARTS, BLOCK = 16, 1024  # programs for a row, and tokens that one reads at a time


@triton.jit
def find(logits, bits, states, best, place, vocabulary, words, span, BLOCK: tl.constexpr):
    """The highest logit that is allowed in a part (span) of a row, and its token; bits (states, words)."""
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    mask = bits + tl.load(states + row) * words
    highest, where = tl.full((BLOCK,), float("-inf"), tl.float32), tl.zeros((BLOCK,), tl.int32)
    for start in range(part * span, tl.minimum((part + 1) * span, vocabulary), BLOCK):
        token = start + tl.arange(0, BLOCK)
        word = tl.load(mask + token // 32, mask=token < vocabulary, other=0)
        logit = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=0.0)
        better = (((word >> (token % 32)) & 1) != 0) & (logit > highest)
        highest, where = tl.where(better, logit, highest), tl.where(better, token, where)
    top = tl.max(highest, 0)
    tl.store(best + row * parts + part, top)
    tl.store(place + row * parts + part, tl.min(tl.where(highest == top, where, vocabulary), 0))


def packed(allowed: Tensor) -> Tensor:
    """The table's bits, 32 to a word: int32 (states, words)."""
    filled = torch.nn.functional.pad(allowed.long(), (0, -allowed.shape[1] % 32)).unflatten(1, (-1, 32))
    return (filled << torch.arange(32)).sum(2).to(torch.int32)  # the highest bit becomes the sign


def prepare(logits: Tensor, start: Tensor, allowed: Tensor) -> Step:
    rows, vocabulary = logits.shape[1:]
    bits, span = packed(allowed).to(logits.device), triton.cdiv(vocabulary, PARTS * BLOCK) * BLOCK
    best, tokens = logits.new_empty(rows, PARTS), start.new_empty(logits.shape[:2])
    place = start.new_empty(rows, PARTS)

    def decode() -> None:
        state = start
        for of_step, token in zip(logits, tokens):
            find[rows, PARTS](of_step, bits, state, best, place, vocabulary, bits.shape[1], span, BLOCK=BLOCK)
            token.copy_(place.gather(1, best.argmax(1, keepdim=True))[:, 0])
            state = following(state, token, len(allowed))

    replay = replayable(decode, logits.device)

    def step() -> Tensor:
        replay()
        return tokens

    return step
