"""Ranks that are threads: as much of torch.distributed and of symmetric memory as chapter 4's pairs ask for."""

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

SECONDS = 20.0  # until a rank that waits in vain gives up


class Ranks:
    """Buffers are common memory. A flag is raised once and awaited before it is raised again, as on GPUs."""

    def __init__(self, count: int) -> None:
        self.count, self.here, self.changed = count, threading.local(), threading.Condition()
        self.met = threading.Barrier(count, timeout=SECONDS)
        self.buffers: dict[int, Tensor] = {}
        self.raised: dict[tuple[int, int, int], bool] = defaultdict(bool)  # by receiver, sender, channel

    def rank(self) -> int:
        return int(self.here.rank)

    def empty(self, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
        self.buffers[self.rank()] = torch.full(tuple(shape), torch.nan, dtype=dtype)
        return self.buffers[self.rank()]

    def rendezvous(self, held: Tensor, group: object) -> "Ranks":
        self.met.wait()
        return self

    def get_buffer(self, rank: int, shape: Any, dtype: torch.dtype) -> Tensor:
        return self.buffers[rank]

    def barrier(self) -> None:
        self.met.wait()

    def put_signal(self, to: int, channel: int) -> None:
        self._turn((to, self.rank(), channel), True)

    def wait_signal(self, sender: int, channel: int) -> None:
        self._turn((self.rank(), sender, channel), False)

    def _turn(self, flag: tuple[int, int, int], raised: bool) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.raised[flag] != raised, SECONDS), f"{flag} stays {not raised}"
            self.raised[flag] = raised
            self.changed.notify_all()

    def each(self, work: Callable[[int], Any]) -> list[Any]:
        """What each rank's work gives, all at once."""

        def of_rank(rank: int) -> Any:
            self.here.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self.count) as threads:
            return list(threads.map(of_rank, range(self.count)))
