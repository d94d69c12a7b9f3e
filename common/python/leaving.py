"""Workers that end while the next pair is loaded and proven at test size: they are gone before anything more is done.

To give a CUDA context back takes a process 0.2 s on an H200, for which no pair waits.
"""

import time
from collections.abc import Iterable

from common.python.worker import CLOSE_S, Worker


class Leaving:
    """Workers that have been told to end. Only `settle` says that they, and all that they started, are gone."""

    def __init__(self, wait: bool = False) -> None:
        """Be ready to see some off, and to `wait` for their end at once."""
        self._wait = wait
        self._workers: list[Worker] = []
        self._deadline = 0.0

    def see_off(self, workers: Iterable[Worker]) -> None:
        """Let them end by themselves, which frees their semaphores; those still at work are killed."""
        self.settle()
        self._deadline = time.monotonic() + CLOSE_S
        self._workers = list(workers)
        for worker in self._workers:
            worker.part()
        if self._wait:
            self.settle()

    def settle(self) -> None:
        """Return when all are gone, however many hang."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.await_end(self._deadline)
        for worker in workers:
            worker.kill()


AT_ONCE = Leaving(wait=True)
