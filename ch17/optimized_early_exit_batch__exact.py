"""At each exit the batch is compacted: those that leave get their answer, and only the others pass the next layers."""

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from ch17.baseline_early_exit_batch import EXITS, deeper
from ch17.baseline_early_exit_batch import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, up: list[Tensor], down: list[Tensor], heads: list[Tensor], probes: Tensor) -> Step:
    samples = torch.arange(len(x), device=x.device)
    logits, first = x.new_empty(len(x), len(heads[0])), torch.empty_like(samples)

    def step() -> tuple[Tensor, Tensor]:
        states, who = x, samples
        for index, (head, probe) in enumerate(zip(heads, probes)):
            states = deeper(states, up, down, index)
            sure = states @ probe > 0 if index < EXITS - 1 else torch.ones_like(who, dtype=torch.bool)
            leave, stay = sure.nonzero()[:, 0], (~sure).nonzero()[:, 0]  # the host waits for their numbers
            first[who[leave]] = index
            logits[who[leave]] = linear(rms_norm(states[leave], states.shape[1:]), head)
            states, who = states[stay], who[stay]
        return logits, first

    return step
