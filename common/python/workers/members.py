"""Workers as members of a session: what they have to do with others' sessions, and how both end.

A CUDA context takes 0.2 s to be given back.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

CLOSE_S = 1.0  # an idle worker ends within milliseconds once its connection is closed

T = TypeVar("T")


class Ended(Exception):
    """All sessions have been told to end: nothing is said against the pair that this one was of."""


class Crowded(Exception):
    """There was no memory for what the pair needs beside others': it is to be run by itself."""


class Member(Protocol):
    """As much of a worker as has to do with others' sessions."""

    share: Any

    def stop(self) -> None: ...
    def stopped(self) -> None: ...
    def go_on(self) -> None: ...
    def part(self) -> None: ...
    def await_end(self, deadline: float) -> None: ...
    def give_up(self) -> None: ...
    def kill(self) -> None: ...
    def pids(self) -> set[int]: ...
    def state(self) -> tuple[str, str]: ...


class ByItself:
    """The share of a worker that belongs to no session."""

    lost_s = 0.0

    def hear(self, listen: Callable[[float], T], timeout_s: float) -> T:
        return listen(timeout_s)

    @contextmanager
    def alone(self, patience_s: float = math.inf, worker: Member | None = None) -> Iterator[bool]:
        yield False


BY_ITSELF = ByItself()


def go_on(workers: Sequence[Member]) -> None:
    """Have those that were stopped go on."""
    for worker in workers:
        worker.go_on()


def part_from(workers: Sequence[Member], tell: bool = True) -> None:
    """Let them end by themselves, which frees their semaphores; those still at work, or not gone in time, are killed.

    `tell` says that they have not been told yet.
    """
    deadline = time.monotonic() + CLOSE_S
    try:
        for worker in workers if tell else ():
            worker.part()
        for worker in workers:
            worker.await_end(deadline)
    finally:
        for worker in workers:
            worker.kill()
