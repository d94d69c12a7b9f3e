"""A worker moves to a core that keeps the host's pace before it takes samples on the host's clock.

On the virtual host of an H200 each of 16 cores ran a fixed loop in 24 us or, most likely while a neighbour worked on
the other half of it, in 40 to 50; each changed several times a second (docs/results/h200/host.md).
"""

import contextlib
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from common.python.timing.clock import pace_us

NEAR = 1.15  # times the best pace, within which a core is quiet
MOST_CORES = 32  # that are looked at in one search: of 16, one took 2.5 ms on an H200's host


@dataclass
class QuietCore:
    """What a process knows of its host's pace; `seek` moves the calling thread, which stays free to be moved again."""

    pace_us: Callable[[], float] = pace_us
    best_us: float | None = None  # of the fixed loop, on any core since a search last found none so quick
    rng: random.Random = field(default_factory=random.Random)

    def seek(self) -> None:
        """Have this thread on a core at the best pace known here.

        The first search learns that pace, and one that finds no such core learns it anew, so that a host that has
        become slower is not searched again and again. Threads and processes that this one starts are not bound.
        """
        known, pace = self.best_us, self._look()
        allowed = os.sched_getaffinity(0)
        if (known is not None and pace <= NEAR * known) or len(allowed) < 2:
            return
        with contextlib.suppress(OSError):  # some sandboxes forbid it
            try:
                self._search(self.rng.sample(sorted(allowed), min(len(allowed), MOST_CORES)), known)
            finally:
                os.sched_setaffinity(0, allowed)

    def quiet_us(self) -> float | None:
        """The pace of a quiet core, in microseconds. An idle machine is quicker than a busy one, hence the margin."""
        self.seek()
        return NEAR * self.best_us if self.best_us else None

    def _search(self, cores: list[int], known: float | None) -> None:
        paces: dict[int, float] = {}
        for core in cores:
            os.sched_setaffinity(0, {core})
            paces[core] = self._look()
            if known is not None and paces[core] <= NEAR * known:
                return
        self.best_us = min(paces.values())
        os.sched_setaffinity(0, {min(paces, key=lambda core: paces[core])})

    def _look(self) -> float:
        """The better of two runs of the loop, since an interrupt may be in one of them."""
        pace = min(self.pace_us(), self.pace_us())
        self.best_us = pace if self.best_us is None else min(self.best_us, pace)
        return pace


def others_ns() -> int:
    """Processor time that all threads of this process but the calling one have had."""
    return time.process_time_ns() - time.thread_time_ns()
