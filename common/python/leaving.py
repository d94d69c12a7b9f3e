"""Workers that end while the next pair is loaded and proven at test size: they are gone before anything more is done.

To give a CUDA context back takes a process 0.2 s on an H200, for which a pair whose worker is in reserve does not wait.
"""

import time
from collections.abc import Iterable

from common.python.worker import CLOSE_S, Worker


class Leaving:
    """Workers that have been told to end. Only `settle` says that they, and all that they started, are gone."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._deadline = 0.0

    def see_off(self, workers: Iterable[Worker]) -> None:
        """Let them end by themselves, which frees their semaphores; those still at work are killed."""
        told, self._workers = self._workers, [*self._workers, *workers]
        for worker in self._workers[len(told) :]:
            worker.part()
        self._await(told)
        self._deadline = time.monotonic() + CLOSE_S

    def settle(self) -> bool:
        """Return when all are gone, however many hang; whether there were any."""
        return self._await(self._workers)

    def _await(self, workers: list[Worker]) -> bool:
        """Until a worker is gone it is in the list, whatever interrupts this."""
        for worker in workers:
            worker.await_end(self._deadline)
        for worker in workers:
            worker.kill()
        self._workers = [worker for worker in self._workers if worker not in workers]
        return bool(workers)


class AtOnce(Leaving):
    """Waits for the end of whom it sees off, and keeps nothing: any thread may use it."""

    def see_off(self, workers: Iterable[Worker]) -> None:
        leaving = Leaving()
        try:
            leaving.see_off(workers)
            leaving.settle()
        finally:
            leaving.settle()  # the rest, where that was interrupted


AT_ONCE = AtOnce()
