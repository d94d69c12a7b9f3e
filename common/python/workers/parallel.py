"""Several pieces of work at once, in threads whose workers are ended when one of them or the user stops it all."""

import math
import multiprocessing
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from common.python.base.machine import Machine
from common.python.workers.interpreter import OtherPython

T = TypeVar("T")
R = TypeVar("R")

MOST_JOBS = 8  # pairs at once, as long as each has so many cores and GiB of the host's and of each GPU's memory
CORES, HOST_GIB, GPU_GIB = 2, 8.0, 10.0


def room(machine: Machine) -> int:
    """How many pairs can be at work at once on this machine."""
    rooms = [machine.cores / CORES, machine.memory_gib / HOST_GIB, *(gpu.memory_gib / GPU_GIB for gpu in machine.gpus)]
    return max(1, min(MOST_JOBS, int(min(rooms))))


def at_once(
    work: Callable[[T], R], items: Sequence[T], jobs: int, deadline: float = math.inf
) -> Generator[tuple[T, R], None, None]:
    """Call `work` for each item, `jobs` at a time; each item with what it gave, as they come.

    Raises what `work` raised, KeyboardInterrupt, and TimeoutError at `deadline`, a monotonic time; all workers of this
    process are then killed, since a thread ends only when the worker that it waits for does.
    """
    with ThreadPoolExecutor(jobs) as pool:
        parts = {pool.submit(work, item): item for item in items}
        try:
            left_s = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())
            for part in as_completed(parts, left_s):
                yield parts[part], part.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(part.done() for part in parts):
                others: list[Any] = list(OtherPython.living)
                for process in multiprocessing.active_children() + others:
                    process.terminate()
                time.sleep(0.05)
            raise
