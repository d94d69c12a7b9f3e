"""The thread that launches kernels and twice as many loader workers as cores may run anywhere: it loses its core."""

import mmap
import multiprocessing
import os
import zlib
from collections.abc import Callable
from multiprocessing.connection import Connection

from torch import Tensor

from common.python.base.machine import usable_cores
from common.python.requirements import needs
from common.python.workload import Cost, Step, Workload

requires = needs(cores=4)
WORKERS = 2 * usable_cores()  # at import, before anything is bound

workload = Workload(
    inputs=lambda draw, launches, n: {"deltas": draw.normal(launches, n)},
    reference=lambda deltas: deltas.sum(0),
    cost=lambda launches, n: Cost(read=4 * launches * n, write=4 * n, items=launches, unit="launches"),
    # Some 15 ms of launches: several of the turns that the kernel gives processes which share a core.
    sizes={"bench": {"launches": 4000, "n": 1024}, "test": {"launches": 23, "n": 37}},
    tolerance=1e-5,  # thousands of additions in fp32
    clock="end_to_end",
    isolated=True,  # affinity is the process's
)


def work(at_work: mmap.mmap, orders: Connection, ours: Connection, set_up: Callable[[], None]) -> None:
    """Decompress samples while the launching process is at work; a step's order is one byte."""
    ours.close()  # so that the end of the step's owner is the end of the pipe
    set_up()
    sample = zlib.compress(os.urandom(1 << 10) * 32)
    while os.read(orders.fileno(), 1):
        for _ in range(1 << 14):  # a second or two at most, should the step never come to its end
            if not at_work[0]:
                break
            zlib.decompress(sample)


def launched(deltas: Tensor, set_up: Callable[[], None]) -> Step:
    """A step that launches one small kernel for each row while workers work; `set_up` runs first in each of them."""
    at_work, context = mmap.mmap(-1, 1), multiprocessing.get_context("fork")
    orders, ours = context.Pipe(duplex=False)
    for _ in range(WORKERS):
        context.Process(target=work, args=(at_work, orders, ours, set_up), daemon=True).start()
    orders.close()
    out, rows = deltas.new_empty(deltas.shape[1]), deltas.unbind()

    def step() -> Tensor:
        at_work[0] = 1
        os.write(ours.fileno(), b"g" * WORKERS)
        out.zero_()
        for row in rows:
            out.add_(row)
        at_work[0] = 0
        return out

    return step


def prepare(deltas: Tensor) -> Step:
    return launched(deltas, set_up=lambda: None)
