"""xgrammar's kernel sets the logits that a row's bits forbid; bits and states stay on the GPU, in one graph."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ch16.baseline_guided_mask import following
from ch16.baseline_guided_mask import workload as workload
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(modules=["xgrammar"])


def prepare(logits: Tensor, start: Tensor, allowed: Tensor) -> Step:
    from xgrammar import apply_token_bitmask_inplace

    words = pad(allowed.long(), (0, -allowed.shape[1] % 32)).unflatten(1, (-1, 32)) << torch.arange(32)
    bits, tokens = words.sum(2).to(torch.int32).to(logits.device), start.new_empty(logits.shape[:2])

    def decode() -> None:
        state = start
        for of_step, token in zip(logits, tokens):
            masked = of_step.clone()  # the logits are an input, which the kernel would change
            apply_token_bitmask_inplace(masked, bits[state])
            token.copy_(masked.argmax(1))
            state = following(state, token, len(allowed))

    replay = replayable(decode, logits.device)

    def step() -> Tensor:
        replay()
        return tokens

    return step
