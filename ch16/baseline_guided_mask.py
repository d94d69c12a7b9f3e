"""The grammar's mask is put together on the host, a row of bools for each request, and copied to the GPU each step."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

ALLOWED = 0.75  # of the vocabulary in each state, as inside a JSON string
STRIDE = 40507  # coprime to the vocabularies, so that multiples of it visit each token once


def grammar(states: int, vocabulary: int) -> Tensor:
    """Which tokens each state of the automaton allows, bool (states, vocabulary); the same in every draw."""
    shuffled = (torch.arange(vocabulary) + torch.arange(states)[:, None] * 977) * STRIDE % vocabulary
    return shuffled < int(ALLOWED * vocabulary)


def following(state: Tensor, token: Tensor, states: int) -> Tensor:
    """The automaton's states after these tokens; a formula in place of a real grammar's table."""
    return (5 * state + token) % states


def inputs(draw: Draw, steps: int, rows: int, states: int, vocabulary: int) -> Inputs:
    """In each row one token that the state allows is planted above all others, and one that it forbids above that."""
    logits, start = draw.normal(steps, rows, vocabulary), draw.integers(rows, high=states)
    allowed, state = grammar(states, vocabulary), start
    for of_step in logits:
        may, chance = allowed.to(draw.device)[state], draw.uniform(rows, vocabulary)
        token, trap = (chance.masked_fill(mask, -1.0).argmax(1, keepdim=True) for mask in (~may, may))
        highest = of_step.amax(1, keepdim=True)
        of_step.scatter_(1, token, highest + 1).scatter_(1, trap, highest + 2)
        state = following(state, token[:, 0], states)
    return {"logits": logits, "start": start, "allowed": allowed}  # the grammar is on the host


def reference(logits: Tensor, start: Tensor, allowed: Tensor) -> Tensor:
    """The greedy token (steps, rows) of those that the grammar allows; each takes its row to another state."""
    tokens, state = [], start
    for of_step in logits:
        tokens.append(of_step.masked_fill(~allowed[state], -torch.inf).argmax(1))
        state = following(state, tokens[-1], len(allowed))
    return torch.stack(tokens)


def cost(steps: int, rows: int, states: int, vocabulary: int) -> Cost:
    """The logits that are allowed, read once."""
    return Cost(read=4 * steps * rows * int(ALLOWED * vocabulary), write=8 * steps * rows, items=steps, unit="steps")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"steps": 8, "rows": 64, "states": 48, "vocabulary": 128256},  # Llama 3's, 33 MB of logits a step
        "test": {"steps": 3, "rows": 3, "states": 7, "vocabulary": 3001},
    },
    tolerance=0.0,  # ids
    frozen=("allowed",),
    clock="end_to_end",
)


def prepare(logits: Tensor, start: Tensor, allowed: Tensor) -> Step:
    def step() -> Tensor:
        tokens, state = [], start
        for of_step in logits:
            mask = torch.stack([allowed[number] for number in state.tolist()]).to(logits.device)
            tokens.append(of_step.masked_fill(~mask, -torch.inf).argmax(1))
            state = following(state, tokens[-1], len(allowed))
        return torch.stack(tokens)

    return step
