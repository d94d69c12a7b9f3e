"""How workers end: by themselves if they do so soon, and in any case. A CUDA context takes 0.2 s to be given back."""

import time
from collections.abc import Sequence
from typing import Any, Protocol

CLOSE_S = 1.0  # an idle worker ends within milliseconds once its connection is closed


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
