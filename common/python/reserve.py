"""The next pair's worker, started while the present pair is loaded, compiled and proven: nothing is timed then.

On an H200 it takes 0.8 s until a fresh process has a CUDA context and the kernels that every proof needs. In reserve it
rehearses, a small proof of the harness's own, and then sleeps. If it is not done when the present pair is to be timed,
it is stopped (SIGSTOP), and goes on when that pair has been profiled as well. Nothing of the present pair is in it: it
comes from the forkserver, as every worker does. One that dies or does not get ready is given up, and its pair hires as
if there had been none.
"""

import contextlib
import math
import time
from collections.abc import Callable

from common.python.worker import Worker, WorkerError

READY_S = 10.0  # from its start, or since it was last stopped: many times what a slow host takes
ANSWER_S = 2.0  # an idle worker answers within a millisecond
REHEARSE, ANSWER = "rehearse", "describe"  # all that a worker in reserve is asked


class Reserve:
    """At most one worker: none where none is wanted, or when it has been taken or given up."""

    def __init__(self, pair: str = "", hire: Callable[[], Worker] | None = None) -> None:
        """Have `hire` start it for the pair with this key, and it rehearse."""
        self.pair = pair
        self._worker: Worker | None = None
        self._busy, self._halted, self._deadline = True, False, time.monotonic() + READY_S
        if hire is not None:
            with contextlib.suppress(OSError, EOFError):  # the pair itself will tell what keeps a worker from starting
                self._worker = hire()
                self._worker.ask(REHEARSE)

    def halt(self) -> None:
        """Have it at work no more, until `go_on`: whatever it does now would be in the times of the present pair."""
        if self._worker is not None and self._busy:
            self._halted = self._worker.halt()
            if not self._halted:
                self.settle()  # it has hardly been forked

    def go_on(self) -> None:
        """Let it finish what `halt` interrupted."""
        if self._worker is not None and self._halted:
            self._halted, self._deadline = False, time.monotonic() + READY_S
            self._worker.go_on()

    def settle(self, deadline: float = math.inf) -> None:
        """Return when it is done: ready, or given up because of an error or the time, a monotonic one."""
        self.go_on()
        if self._worker is not None and self._busy:
            self._hear(self._worker, min(deadline, self._deadline) - time.monotonic())
            self._busy = False

    def take(self, deadline: float = math.inf) -> Worker | None:
        """The worker, ready for its pair; None if there is none, or none that still answers."""
        self.settle(deadline)
        if self._worker is not None:
            self._worker.ask(ANSWER)
            self._hear(self._worker, min(deadline - time.monotonic(), ANSWER_S))
        worker, self._worker = self._worker, None
        return worker

    def _hear(self, worker: Worker, timeout_s: float) -> None:
        try:
            worker.answer(timeout_s)
        except WorkerError as error:
            self.close()
            with contextlib.suppress(OSError), worker.log.open("a") as log:
                log.write(f"the worker that was started ahead of its pair was given up: {error.reason}\n")

    def pids(self) -> set[int]:
        """Those of its processes that may be seen on the GPU."""
        return self._worker.pids() if self._worker is not None else set()

    def close(self) -> bool:
        """End the worker, which has run nobody's code and is not asked; whether there was one."""
        worker = self._worker
        if worker is not None:
            worker.kill()
            self._worker = None
        return worker is not None


NOBODY = Reserve()
