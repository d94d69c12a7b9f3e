"""A worker moves to a core of its host that keeps its pace, before each command: others may use half of the one it has.

On the virtual host of an H200 each of 16 cores ran a fixed loop in 24 us or, most likely while a neighbour worked on
the other half of it, in 40 to 50. Each changed several times a second, on its own: of 123 looks at all of them, each
found two fast cores or more. A process stays where it is, so 100 eager launches, which its core alone decides, took
700 us or 1,000 (docs/results/h200/host.md).
"""

import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from common.python.clock import pace_us
from common.python.findings import cpu_list

NEAR = 1.15  # times the best pace that was seen here, within which a core is quiet
MOST_CORES = 32  # that are looked at in one search: 5 ms where all are slow
CURRENT = 36  # of the fields behind a thread's name in /proc: the core that it is on, proc(5)


@dataclass
class QuietCore:
    """What a process knows of its host's pace; `seek` moves the calling thread, which stays free to be moved again."""

    pace_us: Callable[[], float] = pace_us
    root: Path = Path("/")
    best_us: float = math.inf  # of the fixed loop, on any core so far
    rng: random.Random = field(default_factory=random.Random)

    def seek(self) -> None:
        """Have this thread on a core at the best pace known here; where none is, on the quickest that was looked at.

        The first search learns that pace. Only the thread moves, within its own memory node; which cores it may use is
        afterwards what it was before, so that threads and processes that it starts are not bound.
        """
        learning = math.isinf(self.best_us)
        if self._look() <= NEAR * self.best_us and not learning:
            return
        allowed = os.sched_getaffinity(0)
        cores = self._near(allowed)
        if len(cores) < 2:
            return
        paces: dict[int, float] = {}
        try:
            for core in cores:
                os.sched_setaffinity(0, {core})
                paces[core] = self._look()
                if paces[core] <= NEAR * self.best_us and not learning:
                    break
            else:
                os.sched_setaffinity(0, {min(paces, key=lambda core: paces[core])})
        finally:
            os.sched_setaffinity(0, allowed)

    def _look(self) -> float:
        """The better of two runs of the loop, since an interrupt may be in one of them."""
        pace = min(self.pace_us(), self.pace_us())
        self.best_us = min(self.best_us, pace)
        return pace

    def _near(self, allowed: set[int]) -> list[int]:
        """Some of the allowed cores of the memory node that this thread is on, in random order."""
        here = int((self.root / "proc/thread-self/stat").read_text().rpartition(")")[2].split()[CURRENT])
        nodes = (self.root / "sys/devices/system/node").glob("node[0-9]*/cpulist")
        node = next((cores for cores in map(_cores, nodes) if here in cores), allowed)
        near = sorted(allowed & node)
        return self.rng.sample(near, min(len(near), MOST_CORES))


def _cores(node: Path) -> set[int]:
    return cpu_list(node.read_text())
