"""A worker moves to a quiet core before it takes samples on the host's clock.

On the virtual host of an H200 each of 16 cores ran a fixed loop in 24 us or, most likely while a neighbour worked on
the other half of it, in 40 to 50; each changed several times a second (docs/results/h200/host.md).
"""

import contextlib
import os
import random
import time

from common.python.timing.clock import pace_us

NEAR = 1.15  # times the best pace, within which a core is quiet
MOST_CORES = 32  # tried in one search: 16 took 2.5 ms on an H200's host


class QuietCore:
    """Searches for a core at the best pace known; the thread stays free to be moved again."""

    def __init__(self) -> None:
        self.best_us: float | None = None  # of the fixed loop

    def seek(self) -> None:
        """Move this thread to a core at the best pace.

        A search that finds no such core learns the best pace anew, so that a host that has become slower is not
        searched again and again. Threads and processes that this one starts are not bound.
        """
        known, pace = self.best_us, self._pace()
        allowed = os.sched_getaffinity(0)
        if (known is not None and pace <= NEAR * known) or len(allowed) < 2:
            return
        with contextlib.suppress(OSError):  # some sandboxes forbid it
            try:
                self._search(random.sample(sorted(allowed), min(len(allowed), MOST_CORES)), known)
            finally:
                os.sched_setaffinity(0, allowed)

    def quiet_us(self) -> float | None:
        """The pace below which a core is quiet, in microseconds."""
        self.seek()
        return NEAR * self.best_us if self.best_us else None

    def _search(self, cores: list[int], known: float | None) -> None:
        paces: dict[int, float] = {}
        for core in cores:
            os.sched_setaffinity(0, {core})
            paces[core] = self._pace()
            if known is not None and paces[core] <= NEAR * known:
                return
        self.best_us = min(paces.values())
        os.sched_setaffinity(0, {min(paces, key=lambda core: paces[core])})

    def _pace(self) -> float:
        """The better of two runs of the loop, since one may have been interrupted."""
        pace = min(pace_us(), pace_us())
        self.best_us = pace if self.best_us is None else min(self.best_us, pace)
        return pace


def others_ns() -> int:
    """CPU time of this process's threads other than the calling one."""
    return time.process_time_ns() - time.thread_time_ns()
