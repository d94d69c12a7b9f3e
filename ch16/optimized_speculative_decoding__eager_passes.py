"""A small draft model proposes four tokens, and the target checks all in one pass: it keeps those it would sample.

Both choose with the same noise for the same place, so a proposal is kept exactly when the target chooses it too, and
the tokens are those of the target alone, whatever the draft: its distribution is untouched.
"""

from math import ceil

import torch
from torch import Tensor

from ch16.baseline_speculative_decoding import sample
from ch16.baseline_speculative_decoding import workload as workload
from common.models.caches import continuing, new_cache, prefilling
from common.models.decoder import Shape, Weights, forward
from common.models.graphs import replayable
from common.models.timeline import Deliver, metered
from common.python.workload import Metered

PROPOSED = 4


def acceptance(made: int, rounds: int) -> dict[str, float]:
    """From the tokens that came of so many verifications; each makes one more than it accepts."""
    return {"accepted share": (made / rounds - 1) / PROPOSED, "tokens a verification": made / rounds}


def prepare(weights: Weights, shapes: tuple[Shape, Shape], draft: Weights, prompt: Tensor, noise: Tensor) -> Metered:
    (shape, smaller), start, new, head = shapes, prompt.shape[1], len(noise), weights["head"]
    room = new + PROPOSED + 1  # what is checked may reach beyond the last token that is wanted
    caches = [new_cache(each, 1, start + room, head) for each in shapes]
    tokens, states = prompt.new_empty(room), head.new_empty(room, shape.width)
    made, window = prompt.new_ones(1), prompt.new_zeros(1, PROPOSED + 2)  # the latest two tokens, then the proposed
    positions, ahead = torch.arange(start, device=prompt.device)[None], torch.arange(PROPOSED + 2, device=prompt.device)

    def begin() -> None:
        hidden = forward(weights, shape, prompt, positions, prefilling(caches[0]))[0, -1:]
        forward(draft, smaller, prompt, positions, prefilling(caches[1]))
        window[0, :2] = torch.cat([prompt[0, -1:], sample(weights, hidden, noise[:1])])
        tokens[:1], states[:1] = window[0, 1:2], hidden
        made.fill_(1)

    def propose() -> None:
        for last in range(1, PROPOSED + 1):
            part = slice(last if last > 1 else 0, last + 1)  # at first two: if all were kept, the draft lacks both
            here = made[None] + (start - 2) + ahead[part]
            hidden = forward(draft, smaller, window[:, part], here, continuing(caches[1], here))[0, -1:]
            window[:, last + 1] = sample(draft, hidden, noise[(made + last - 1).clamp(max=new - 1)])

    def check() -> None:
        places, here = made + ahead[:-1], made[None] + (start - 2) + ahead[1:]
        hidden = forward(weights, shape, window[:, 1:], here, continuing(caches[0], here))[0]
        chosen = sample(weights, hidden, noise[places.clamp(max=new - 1)])
        kept = (chosen[:-1] == window[0, 2:]).cumprod(0).sum(0, keepdim=True)  # proposals before the first wrong one
        tokens[places], states[places] = chosen, hidden
        window[0, :2] = torch.cat([window[0, kept + 1], chosen[kept]])
        made.add_(kept + 1)

    begin_again, propose_again, check_again = (replayable(work, prompt.device) for work in (begin, propose, check))
    told: dict[str, float] = {}

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        begin_again()
        deliver([0])
        count, rounds = 1, 0
        while count < new:
            certain = ceil((new - count) / (PROPOSED + 1))  # so many are needed though all be kept: nothing to wait for
            for again in (propose_again, check_again) * certain:
                again()
            before, count, rounds = count, int(made), rounds + certain
            deliver([0] * (min(count, new) - before))
        told.update(acceptance(count - 1, rounds))
        return tokens[:new], states[:new]

    served = metered(serve, prompt.device)
    return Metered(served.step, lambda: {**served.metrics(), **told})
