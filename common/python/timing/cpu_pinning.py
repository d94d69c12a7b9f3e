"""A worker moves to a core that keeps its host's pace, before samples on the host's clock: others may use half of one.

On the virtual host of an H200 each of 16 cores ran a fixed loop in 24 us or, most likely while a neighbour worked on
the other half of it, in 40 to 50. Each changed several times a second, on its own: of 123 looks at all of them, each
found two fast cores or more. A process stays where it is: 100 eager launches took 698 us at the 10th percentile and
1,001 at the 90th (docs/results/h200/host.md).
"""

import contextlib
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from common.python.base.check_result import cpu_list
from common.python.timing.clock import pace_us

NEAR = 1.15  # times the best pace, within which a core is quiet
MOST_CORES = 32  # that are looked at in one search: of 16, one took 2.5 ms on an H200's host
CURRENT = 36  # of the fields behind a thread's name in /proc: the core that it is on, proc(5)


@dataclass
class QuietCore:
    """What a process knows of its host's pace; `seek` moves the calling thread, which stays free to be moved again."""

    pace_us: Callable[[], float] = pace_us
    root: Path = Path("/")
    best_us: float | None = None  # of the fixed loop, on any core since a search last found none so quick
    forbidden: bool = False  # to bind a thread, as in some sandboxes
    rng: random.Random = field(default_factory=random.Random)

    def seek(self) -> None:
        """Have this thread on a core at the best pace known here.

        The first search learns that pace, and one that finds no such core learns it anew: a host that is slower as a
        whole is not searched again and again. Only the thread moves, within its own memory node, and which cores it may
        use is afterwards what it was: threads and processes that it starts are not bound.
        """
        if self.forbidden:
            return
        known, pace = self.best_us, self._look()
        if known is not None and pace <= NEAR * known:
            return
        allowed = os.sched_getaffinity(0)
        cores = self._near(allowed)
        if len(cores) < 2:
            return
        try:
            self._search(cores, known)
        except OSError:
            self.forbidden = True
        finally:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, allowed)

    def quiet_us(self) -> float | None:
        """What a quiet core may take, in microseconds, by the quickest of those that a search looks at now.

        An idle machine is quicker than one at work: 15.0 to 16.3 us where sessions had 17.3 to 19.2 at best, on a CPU
        of two cores. Held against the idle pace itself, 59 of 78 blocks of `ch01:batch_size` were slow there.
        """
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
        self.best_us = min(self.best_us or math.inf, pace)
        return pace

    def _near(self, allowed: set[int]) -> list[int]:
        """Some of the allowed cores of the memory node that this thread is on, in random order."""
        nodes = (self.root / "sys/devices/system/node").glob("node[0-9]*/cpulist")
        try:
            here = int((self.root / "proc/thread-self/stat").read_text().rpartition(")")[2].split()[CURRENT])
            node = next((cores for cores in map(_cores, nodes) if here in cores), allowed)
        except OSError:  # this kernel does not tell: then all are one node
            node = allowed
        near = sorted(allowed & node)
        return self.rng.sample(near, min(len(near), MOST_CORES))


def _cores(node: Path) -> set[int]:
    return cpu_list(node.read_text())


def others_ns() -> int:
    """Processor time that all threads of this process but the calling one have had."""
    return time.process_time_ns() - time.thread_time_ns()
