"""The thread that launches kernels and twice as many loader workers as cores may run anywhere: it loses its core."""

import mmap
import multiprocessing
import os
import zlib
from collections.abc import Callable
from itertools import cycle
from multiprocessing.connection import Connection

from torch import Tensor

from common.python.base.machine import usable_cores
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(cores=4)
WORKERS = 2 * usable_cores()  # at import, before anything is bound
BATCH = 64  # samples, some 2 ms of work
PATIENCE_S = 10.0  # for a batch

workload = Workload(
    inputs=lambda draw, launches, n: {"deltas": draw.normal(launches, n)},
    reference=lambda deltas: deltas.sum(0),
    cost=lambda launches, n: Cost(read=4 * launches * n, write=4 * n, items=launches, unit="launches"),
    # Tens of milliseconds of launches: many of the turns that the kernel gives processes which share a core.
    sizes={"bench": {"launches": 4000, "n": 1024}, "test": {"launches": 23, "n": 37}},
    tolerance=1e-5,  # thousands of additions in fp32
    clock="end_to_end",
    isolated=True,  # affinity is the process's
)


def work(
    at_work: mmap.mmap, orders: Connection, reports: Connection, others: list[Connection], set_up: Callable[[], None]
) -> None:
    """Decompress samples for as long as `at_work` is the step's number, which is the order; report the first batch."""
    for end in others:
        end.close()  # so that the end of the step's owner is the end of the pipe
    set_up()
    sample = zlib.compress(os.urandom(1 << 10) * 32)
    while number := os.read(orders.fileno(), 1):
        for index in range(1 << 14):  # a second or two at most, should the step never come to its end
            if at_work[:1] != number:
                break
            zlib.decompress(sample)
            if index == BATCH:
                os.write(reports.fileno(), number)


def launched(deltas: Tensor, set_up: Callable[[], None]) -> Step:
    """A step that waits for the batches of a quarter of the workers, and then launches one small kernel for each row.

    All workers go on meanwhile. `set_up` runs first in each of them. When the launching process wakes up, all cores
    that workers may use are taken; a process that never slept would keep its own without a rival.
    """
    at_work, context = mmap.mmap(-1, 1), multiprocessing.get_context("fork")
    (orders, ours), (reports, theirs) = context.Pipe(duplex=False), context.Pipe(duplex=False)
    for _ in range(WORKERS):
        context.Process(target=work, args=(at_work, orders, theirs, [ours, reports], set_up), daemon=True).start()
    orders.close()
    theirs.close()
    out, rows, numbers = deltas.new_empty(deltas.shape[1]), deltas.unbind(), cycle(range(1, 256))

    def step() -> Tensor:
        at_work[0] = number = next(numbers)
        os.write(ours.fileno(), bytes([number]) * WORKERS)
        missing = WORKERS // 4
        while missing > 0:
            if not reports.poll(PATIENCE_S) or not (reported := os.read(reports.fileno(), WORKERS)):
                raise RuntimeError("no batch from the workers: they have ended, or have no core")
            missing -= reported.count(number)  # others are late reports of steps before
        out.zero_()
        for row in rows:
            out.add_(row)
        at_work[0] = 0
        return out

    return step


def prepare(deltas: Tensor) -> Step:
    return launched(deltas, set_up=lambda: None)
