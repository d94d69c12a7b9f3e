"""What a rank knows of the other ranks of its pair: how to agree with them, and to begin at the same moment.

A rank that went another way than the others, with one warm-up pass more or one proof less, would wait in a collective
for ever. So whatever depends on a rank's own clock or its own output is agreed on before anybody acts on it.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(eq=False)
class Ranks:
    """One rank among `size`. Alone, which is the default, it agrees with itself at no cost."""

    rank: int = 0
    size: int = 1
    local: int = 0  # its number on its host, and that of its GPU
    group: Any = None  # of the harness, on gloo: what a pair does in the default group cannot match what is said here
    counters: memoryview | None = None  # in memory that the ranks of one host share, a number each
    meetings: int = field(default=0, init=False)
    token: Tensor | None = field(default=None, init=False)

    def agree(self, reason: str | None) -> str | None:
        """The reason that any rank has, the first one's, with its number unless all have the same."""
        if self.size == 1:
            return reason
        reasons: list[str | None] = [None] * self.size
        dist.all_gather_object(reasons, reason, group=self.group)
        if len(set(reasons)) == 1:
            return reason
        return next(on_rank(text, rank) for rank, text in enumerate(reasons) if text is not None)

    def either(self, flag: bool) -> bool:
        """Whether any rank says so."""
        return any(self.slowest([float(flag)]))

    def least(self, value: float | None) -> float | None:
        """The smallest of the ranks' values; None if it is None on all ranks."""
        return None if value is None else -self.slowest([-value])[0]

    def slowest(self, times: list[float]) -> list[float]:
        """Each time as the rank that took longest read it."""
        if self.size == 1:
            return times
        longest = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(longest, dist.ReduceOp.MAX, group=self.group)
        return longest.tolist()

    def meet(self) -> None:
        """Return when all ranks have come: those of one host within a microsecond of each other.

        Messages alone would let one go a tenth of a millisecond before the other, and its time would hold that wait.
        """
        if self.size == 1 or self.counters is None:
            return
        if len(self.counters) < self.size:
            dist.barrier(group=self.group)
        self.meetings += 1
        self.counters[self.local] = self.meetings
        while min(self.counters) < self.meetings:
            os.sched_yield()

    def enqueue_meeting(self) -> None:
        """Enqueue what ends on all GPUs at about the same time: what is enqueued next begins together."""
        if self.size == 1:
            return
        if self.token is None:
            self.token = torch.zeros(1, device="cuda")
        dist.all_reduce(self.token)


ALONE = Ranks()


def on_rank(text: str, rank: int) -> str:
    """What is said of one rank."""
    return f"{text}, on rank {rank}"
