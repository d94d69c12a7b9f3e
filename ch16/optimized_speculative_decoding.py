"""A small draft model proposes four tokens, and the target checks all in one pass: it keeps those it would sample.

Both choose with the same noise for the same place, so a proposal is kept exactly when the target chooses it too, and
the tokens are those of the target alone, whatever the draft: its distribution is untouched.
"""

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


def acceptance(counts: list[int]) -> dict[str, float]:
    """From how many tokens there were after each verification; each makes one more than it accepts."""
    a_verification = (counts[-1] - counts[0]) / (len(counts) - 1)
    return {"accepted share": (a_verification - 1) / PROPOSED, "tokens a verification": a_verification}


def prepare(weights: Weights, shapes: tuple[Shape, Shape], draft: Weights, prompt: Tensor, noise: Tensor) -> Metered:
    (shape, smaller), start, new, head = shapes, prompt.shape[1], len(noise), weights["head"]
    room = new + PROPOSED + 1  # what is checked may reach beyond the last token that is wanted
    caches = [new_cache(each, 1, start + room, head) for each in shapes]
    tokens, states = prompt.new_empty(room), head.new_empty(room, shape.width)
    made, window = prompt.new_zeros(1), prompt.new_zeros(1, PROPOSED + 1)  # the latest token, then the proposed ones
    positions, ahead = torch.arange(start, device=prompt.device)[None], torch.arange(PROPOSED + 1, device=prompt.device)

    def propose() -> None:
        for index in range(PROPOSED + 1):  # the last pass only leaves keys and values, should all be kept
            here = made[None] + (start - 1 + index)
            hidden = forward(draft, smaller, window[:, index, None], here, continuing(caches[1], here))
            if index < PROPOSED:
                place = (made + index).clamp(max=new - 1)
                window[:, index + 1] = sample(draft, hidden[0], noise[place])

    def check() -> None:
        here = made[None] + (start - 1) + ahead
        hidden = forward(weights, shape, window, here, continuing(caches[0], here))[0]
        places = made + ahead
        chosen = sample(weights, hidden, noise[places.clamp(max=new - 1)])
        kept = (chosen[:-1] == window[0, 1:]).cumprod(0).sum(0, keepdim=True)  # proposals before the first wrong one
        tokens[places], states[places] = chosen, hidden
        window[0, :1] = chosen[kept]
        made.add_(kept + 1)

    counts: list[int] = []  # of tokens, after the prompt and after each verification
    propose_again, check_again = replayable(propose, prompt.device), replayable(check, prompt.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        hidden = forward(weights, shape, prompt, positions, prefilling(caches[0]))[0, -1:]
        forward(draft, smaller, prompt, positions, prefilling(caches[1]))
        window[:, 0] = sample(weights, hidden, noise[:1])
        tokens[:1], states[:1] = window[0, :1], hidden
        made.fill_(1)
        deliver([0])
        counts[:] = [1]
        while counts[-1] < new:
            propose_again()
            check_again()
            counts.append(int(made))
            deliver([0] * (min(counts[-1], new) - counts[-2]))
        return tokens[:new], states[:new]

    served = metered(serve, prompt.device)
    return Metered(served.step, lambda: {**served.metrics(), **acceptance(counts)})
