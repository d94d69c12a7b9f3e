"""Chapter 4's ring of partial products: each rank's sum visits all others and comes home, and each turn waits for it.

Here the ranks are threads, their buffers are common memory, and a stream is the thread itself.
"""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from ch04 import optimized_tp_gemm_overlap as ring
from ch04.baseline_tp_gemm_overlap import reference

STEPS = 3


class Ranks:
    """As much of torch.distributed and of symmetric memory as the ring asks for."""

    def __init__(self, count: int) -> None:
        self.count, self.here = count, threading.local()
        self.met = threading.Barrier(count, timeout=20)
        self.buffers: dict[int, Tensor] = {}
        self.flags: dict[tuple[int, int, int], threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))
        self.lock = threading.Lock()

    def rank(self) -> int:
        return int(self.here.rank)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        self.buffers[self.rank()] = torch.full(shape, torch.nan, dtype=dtype)
        return self.buffers[self.rank()]

    def rendezvous(self, held: Tensor, group: object) -> "Ranks":
        self.met.wait()
        return self

    def get_buffer(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self.buffers[rank]

    def barrier(self) -> None:
        self.met.wait()

    def flag(self, source: int, to: int, channel: int) -> threading.Semaphore:
        with self.lock:
            return self.flags[source, to, channel]

    def put_signal(self, to: int, channel: int) -> None:
        self.flag(self.rank(), to, channel).release()

    def wait_signal(self, source: int, channel: int) -> None:
        assert self.flag(source, self.rank(), channel).acquire(timeout=20)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_rank_ends_with_the_sum_of_all_ranks_products_for_its_rows(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks(count)
    world = SimpleNamespace(get_rank=ranks.rank, get_world_size=lambda: count, group=SimpleNamespace(WORLD=None))
    monkeypatch.setattr(ring, "dist", world)
    monkeypatch.setattr(ring, "symmetric_memory", ranks)
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda priority: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    torch.manual_seed(0)
    x, w = torch.randn(STEPS, count, count * 9, 5), torch.randn(count, 5, 7)

    def of_rank(rank: int) -> list[Tensor]:
        ranks.here.rank = rank
        mine = x[0, rank].clone()
        step, outs = ring.prepare(mine, w[rank]), list[Tensor]()
        for fresh in x[:, rank]:
            mine.copy_(fresh)
            out = step()
            assert isinstance(out, Tensor)
            outs.append(out.clone())
        return outs

    with ThreadPoolExecutor(count) as pool:
        outs = list(pool.map(of_rank, range(count)))
    for turn, of_step in enumerate(x):
        for rank in range(count):
            torch.testing.assert_close(outs[rank][turn], reference(rank, list(of_step), list(w)))
