"""The next pair's workers, started while the present pair is loaded, compiled and proven: nothing is timed then.

On an H200 it takes 0.8 s until a fresh process has a CUDA context and the kernels that every proof needs. In reserve it
rehearses, a small proof of the harness's own, answers what its pair will ask first (`foretold`), and then sleeps. If it
is not done when the present pair compiles, or is to be timed, it is stopped (SIGSTOP); it goes on while that pair is
proven, and when it has been profiled as well. Nothing of the present pair is in it: it comes from the forkserver, as
every worker does, or is a fresh interpreter, of which an isolated pair has one for each variant. One that dies or does
not come to its pair is given up, and its pair hires as if there had been none.
"""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from common.python.discovery import Pair
from common.python.machine import Machine
from common.python.worker import Worker, WorkerError

READY_S = 30.0  # for one not yet at its pair, from its start or last stop; and for any of several pairs to be ready
LOOK_S = 0.005  # between two looks for one that is ready
ANSWER_S = 2.0  # an idle worker answers within a millisecond
OWN = ("start", "rehearsal")  # what it is at before it comes to its pair's code
DEEPEST = 3  # pairs with workers in reserve, as long as each has so many cores and GiB of the host's and GPUs' memory
CORES, HOST_GIB, GPU_GIB = 4, 16.0, 32.0
GET_READY, ANSWER = "get_ready", "describe"  # all that a worker in reserve is asked
Script = dict[str, Any]  # arguments of `foretold.foretell`; with none, the worker rehearses and no more


class Reserve:
    """At most one worker for each script: none where none is wanted, or when they have been taken or given up."""

    def __init__(
        self, pair: str = "", hire: Callable[[int], Worker] | None = None, scripts: Sequence[Script] = ()
    ) -> None:
        """Have `hire(index)` start those of the pair with this key; each is asked to get ready by its script."""
        self.pair = pair
        self._workers: dict[int, Worker] = {}
        self._answered: dict[int, list[dict[str, Any]]] = {}
        self._ready_s = READY_S * len(scripts)  # several may share a core
        self._busy, self._halted, self._deadline = True, False, time.monotonic() + self._ready_s
        if hire is None:
            return
        for index, script in enumerate(scripts):
            with contextlib.suppress(OSError, EOFError):  # the pair itself will tell what keeps a worker from starting
                self._workers[index] = hire(index)
                self._workers[index].ask(GET_READY, **script)

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

    def ready(self) -> bool:
        """Whether each of them has answered or died, so that `take` need not wait; true where there are none."""
        return all(worker.answered() for worker in self._workers.values())

    def settle(self, deadline: float = math.inf) -> None:
        """Return when they are done: each is ready, or given up because of an error or the time.

        Raises WorkerError for one that is still at its pair's own code at `deadline`, a monotonic time.
        """
        self.go_on()
        if self._busy:
            for index in list(self._workers):
                until = deadline if self._begun(index) else min(deadline, self._deadline)
                self._answered[index] = self._hear(index, until - time.monotonic(), deadline) or []
            self._busy = False

    def take(self, index: int, deadline: float = math.inf) -> Worker | None:
        """The worker with this index, ready for its pair; None if there is none, or it does not answer any more.

        Raises WorkerError as `settle` does.
        """
        self.settle(deadline)
        if index in self._workers:
            self._workers[index].ask(ANSWER)
            self._hear(index, min(deadline - time.monotonic(), ANSWER_S))
        if (worker := self._workers.pop(index, None)) is not None:
            worker.foretell(self._answered[index])
        return worker

    def _begun(self, index: int) -> bool:
        """Whether the worker is at its pair's code."""
        return self._workers[index].state()[1] not in OWN

    def _hear(self, index: int, timeout_s: float, deadline: float = math.inf) -> Any:
        """The answer; None where there is none, and the worker is given up. A hang in its pair's code is told of."""
        try:
            return self._workers[index].answer(timeout_s)
        except WorkerError as error:
            hangs = error.kind == "hung" and self._begun(index) and time.monotonic() >= deadline
            self._give_up(index, error.reason)
            if hangs:
                raise
            return None

    def _give_up(self, index: int, reason: str) -> None:
        worker = self._workers.pop(index)
        worker.kill()
        with contextlib.suppress(OSError), worker.log.open("a") as log:
            log.write(f"the worker that was started ahead of its pair was given up: {reason}\n")

    def pids(self) -> set[int]:
        """Those of their processes that may be seen on the GPU."""
        return set().union(*(worker.pids() for worker in self._workers.values()))

    def close(self) -> bool:
        """End those workers, which are not asked; whether there were any.

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


class Reserves:
    """Those of the next few pairs, in their order; who is ready first need not wait for another's imports."""

    def __init__(self) -> None:
        self._waiting: list[Reserve] = []

    def pairs(self) -> list[str]:
        """Whose there are."""
        return [reserve.pair for reserve in self._waiting]

    def next(self, pairs: Sequence[Pair], goes_on: Callable[[], bool]) -> Pair:
        """Whose turn it is of `pairs`, in their order, while the suite `goes_on`: the first whose workers are ready.

        Where there is none, wait for whichever is first, up to READY_S; for one pair alone its own session waits.
        """
        until, ready = time.monotonic() + READY_S, list[str]()
        if len(self._waiting) > 1 and pairs[0].key in self.pairs():
            while not (ready := self._ready()) and goes_on() and time.monotonic() < until:
                time.sleep(LOOK_S)
        return next((pair for pair in pairs if pair.key in ready), pairs[0])

    def _ready(self) -> list[str]:
        return [reserve.pair for reserve in self._waiting if reserve.ready()]

    def take(self, pair: str) -> Reserve:
        """That of the pair whose turn has come; NOBODY if it has none."""
        taken = next((reserve for reserve in self._waiting if reserve.pair == pair), NOBODY)
        self._waiting = [reserve for reserve in self._waiting if reserve is not taken]
        return taken

    def add(self, reserve: Reserve) -> None:
        """Have it behind the others."""
        self._waiting.append(reserve)

    def keep(self, pairs: Collection[str]) -> None:
        """Close those of all other pairs."""
        for reserve in [reserve for reserve in self._waiting if reserve.pair not in pairs]:
            reserve.close()
            self._waiting.remove(reserve)

    def halt(self) -> None:
        for reserve in self._waiting:
            reserve.halt()

    def go_on(self) -> None:
        for reserve in self._waiting:
            reserve.go_on()

    def pids(self) -> set[int]:
        return set().union(*(reserve.pids() for reserve in self._waiting))

    def close(self) -> bool:
        """End all their workers; whether there were any."""
        return max([reserve.close() for reserve in self._waiting], default=False)


def depth(machine: Machine) -> int:
    """Of how many pairs workers may be in reserve: more than one on a machine with room for their processes."""
    rooms = [machine.cores / CORES, machine.memory_gib / HOST_GIB, *(gpu.memory_gib / GPU_GIB for gpu in machine.gpus)]
    return max(1, min(DEEPEST, int(min(rooms))))
