"""The next pair's workers, started while the present pair is loaded, compiled and proven: nothing is timed then.

On an H200 it takes 0.8 s until a fresh process has a CUDA context and the kernels that every proof needs. In reserve it
rehearses, a small proof of the harness's own, and then sleeps. If it is not done when the present pair compiles, or is
to be timed, it is stopped (SIGSTOP); it goes on while that pair is proven, and when it has been profiled as well.
Nothing of the present pair is in it: it comes from the forkserver, as every worker does, or is a fresh interpreter, of
which an isolated pair has one for each variant. One that dies or does not get ready is given up, and its pair hires as
if there had been none.
"""

import contextlib
import math
import time
from collections.abc import Callable

from common.python.worker import Worker, WorkerError

READY_S = 10.0  # for each, from their start, or since they were last stopped: many times what a slow host takes
ANSWER_S = 2.0  # an idle worker answers within a millisecond
REHEARSE, ANSWER = "rehearse", "describe"  # all that a worker in reserve is asked


class Reserve:
    """At most `count` workers: none where none is wanted, or when they have been taken or given up."""

    def __init__(self, pair: str = "", hire: Callable[[int], Worker] | None = None, count: int = 1) -> None:
        """Have `hire(index)` start those of the pair with this key, and them rehearse."""
        self.pair = pair
        self._workers: dict[int, Worker] = {}
        self._ready_s = READY_S * count  # several may share a core
        self._busy, self._halted, self._deadline = True, False, time.monotonic() + self._ready_s
        if hire is None:
            return
        for index in range(count):
            with contextlib.suppress(OSError, EOFError):  # the pair itself will tell what keeps a worker from starting
                self._workers[index] = hire(index)
                self._workers[index].ask(REHEARSE)

    def halt(self) -> None:
        """Have them at work no more, until `go_on`: whatever they do now would be in the times of the present pair."""
        if self._workers and self._busy:
            self._halted = True
            for index in [index for index, worker in self._workers.items() if not worker.halt()]:
                self._give_up(index, "it had hardly started")

    def go_on(self) -> None:
        """Let them finish what `halt` interrupted."""
        if self._halted:
            self._halted, self._deadline = False, time.monotonic() + self._ready_s
            for worker in self._workers.values():
                worker.go_on()

    def settle(self, deadline: float = math.inf) -> None:
        """Return when they are done: each is ready, or given up because of an error or the time, a monotonic one."""
        self.go_on()
        if self._busy:
            for index in list(self._workers):
                self._hear(index, min(deadline, self._deadline) - time.monotonic())
            self._busy = False

    def take(self, index: int, deadline: float = math.inf) -> Worker | None:
        """The worker with this index, ready for its pair; None if there is none, or it does not answer any more."""
        self.settle(deadline)
        if index in self._workers:
            self._workers[index].ask(ANSWER)
            self._hear(index, min(deadline - time.monotonic(), ANSWER_S))
        return self._workers.pop(index, None)

    def _hear(self, index: int, timeout_s: float) -> None:
        try:
            self._workers[index].answer(timeout_s)
        except WorkerError as error:
            self._give_up(index, error.reason)

    def _give_up(self, index: int, reason: str) -> None:
        worker = self._workers.pop(index)
        worker.kill()
        with contextlib.suppress(OSError), worker.log.open("a") as log:
            log.write(f"the worker that was started ahead of its pair was given up: {reason}\n")

    def pids(self) -> set[int]:
        """Those of their processes that may be seen on the GPU."""
        return set().union(*(worker.pids() for worker in self._workers.values()))

    def close(self) -> bool:
        """End those workers, which have run nobody's code and are not asked; whether there were any.

        They are given up when they are gone: whatever interrupts this, a second call does the rest.
        """
        workers = list(self._workers.values())
        for worker in workers:
            worker.give_up()  # they end side by side
        for worker in workers:
            worker.kill()
        self._workers = {}
        return bool(workers)


NOBODY = Reserve()
