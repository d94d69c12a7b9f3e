"""What a worker takes of its machine, for the suite to know how many pairs have room beside each other."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

TIMED = ("start_clock", "await_device", "warm", "block")  # commands for which nobody else is at work
CONTEXT_GIB = 1.0  # more than a process has beside what its allocator reserves, which is hundreds of MiB


class Usage:
    """Of this process, from its start."""

    def __init__(self) -> None:
        self._timed_s = 0.0  # of processors, by all threads

    @contextmanager
    def during(self, command: str) -> Iterator[None]:
        """What is inside is the work of this command."""
        began_s = time.process_time()
        try:
            yield
        finally:
            self._timed_s += (time.process_time() - began_s) * (command in TIMED)

    def told(self) -> dict[str, float]:
        """`gib` of a GPU's memory at most: what its allocator had reserved, and its context. None before it has one.

        `cpu_s` of processors, by all of its threads, while others were at work as well.
        """
        gib = torch.cuda.max_memory_reserved() / 2**30 + CONTEXT_GIB if torch.cuda.is_initialized() else 0.0
        return {"gib": gib, "cpu_s": time.process_time() - self._timed_s}
