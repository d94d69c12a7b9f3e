"""A new offload buffer on pages of 4 KiB is page-locked as it is: each page is faulted in and pinned by one thread."""

import mmap
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from common.python.workload import Cost, Step, Workload

workload = Workload(
    inputs=lambda draw, n: {"state": draw.normal(n)},
    reference=lambda state: state,
    cost=lambda n: Cost(pcie_bytes=4 * n, host_bytes=2 * 4 * n),  # the way out and the way back may overlap
    sizes={"bench": {"n": 1 << 26}, "test": {"n": 100_003}},  # 256 MiB: 65,536 small pages or 128 huge ones
    tolerance=0.0,  # copies
    as_drawn=("state",),
    clock="end_to_end",
)


def check(error: Any) -> None:
    if int(error):
        raise RuntimeError(f"page-locking: {error}")


def offloaded(state: Tensor, advice: int, touch: Callable[[Tensor], None]) -> Step:
    """A step that makes a buffer, page-locks it, sends the state there and back, and gives the buffer up."""
    back, size = torch.empty_like(state), state.nbytes

    def step() -> Tensor:
        # Private: Python's default is shared memory, which another switch (shmem_enabled) keeps on small pages.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(advice)  # before the first write, which is when pages are made
        buffer = torch.frombuffer(memory, dtype=state.dtype)
        touch(buffer)
        if state.is_cuda:
            check(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), size, 0))
        buffer.copy_(state, non_blocking=True)
        back.copy_(buffer)  # in order, on the same stream; the host waits for it
        if state.is_cuda:
            torch.cuda.synchronize()  # nothing uses the buffer any longer
            check(torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr()))
        del buffer  # or the mapping could not be closed
        memory.close()
        return back

    return step


def prepare(state: Tensor) -> Step:
    # What the kernel does unasked where it gives huge pages on request only; where it gives them always, it is asked.
    return offloaded(state, mmap.MADV_NOHUGEPAGE, lambda buffer: None)
