"""Chapter 4's pairs on threads that stand for ranks: what goes over links, when, and that each turn waits for it.

As much of torch.distributed and of symmetric memory as they ask for; buffers are common memory.
"""

import importlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ch04 import baseline_pipeline_schedule as pair
from ch04 import optimized_tp_gemm_overlap as ring
from ch04.baseline_tp_gemm_overlap import reference
from ch04.optimized_pipeline_schedule__1f1b import one_by_one
from common.models import link
from common.python.workload import Draw

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


# The pipeline, and how long its bubbles are.

VARIANTS = ["baseline_pipeline_schedule", "optimized_pipeline_schedule", "optimized_pipeline_schedule__1f1b"]


class OnGpu(Tensor):
    """A tensor of the host that says it is on a GPU."""

    is_cuda = True


class Gpus(Ranks):
    """Each rank has a stream, on which alone messages are sent."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.parts: dict[int, Tensor] = {}

    def empty(self, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
        self.buffers[self.rank()] = super().empty(shape, dtype, device).as_subclass(OnGpu)
        return self.buffers[self.rank()]

    def get_buffer(self, rank: int, shape: Any, dtype: torch.dtype) -> Tensor:
        assert self.here.stream is not None, "the copy is to run beside the products"
        return super().get_buffer(rank, shape, dtype)

    def put_signal(self, to: int, channel: int) -> None:
        assert self.here.stream is not None, "a flag that overtakes its message"
        super().put_signal(to, channel)

    def all_reduce(self, sums: Tensor) -> None:
        self.parts[self.rank()] = sums.clone()
        self.barrier()
        sums.copy_(torch.stack(list(self.parts.values())).sum(dim=0))
        self.barrier()

    @contextmanager
    def stream(self, stream: "Stream") -> Iterator[None]:
        assert stream.waited, "a message that sets out before it is made"
        self.here.stream, stream.waited = stream, False
        yield
        self.here.stream = None


class Stream:
    waited = False

    def wait_stream(self, other: "Stream") -> None:
        self.waited = True


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_messages_between_gpus_arrive_and_no_flag_is_left(
    variant: str, ranks: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpus, size = Gpus(ranks), pair.workload.sizes["test"]
    world = {"get_rank": gpus.rank, "get_world_size": lambda: ranks, "all_reduce": gpus.all_reduce}
    dist = SimpleNamespace(**world, Work=object, group=SimpleNamespace(WORLD=None))
    monkeypatch.setattr(pair, "dist", dist)
    monkeypatch.setattr(link, "dist", dist)
    module = importlib.import_module(f"ch04.{variant}")
    monkeypatch.setattr(module, "dist", dist, raising=False)
    monkeypatch.setattr(link, "symmetric_memory", gpus)
    for name, fake in (("Stream", Stream), ("current_stream", Stream), ("stream", gpus.stream)):
        monkeypatch.setattr(torch.cuda, name, fake)
    held: list[Tensor] = []  # back from the allocator until they have left
    monkeypatch.setattr(Tensor, "record_stream", lambda message, stream: held.append(message))
    given = [pair.inputs(Draw(torch.device("cpu"), 3, tmp_path, rank, ranks), **size) for rank in range(ranks)]

    def two_steps(rank: int) -> Tensor:
        gpus.here.stream, x = None, given[rank]["x"]
        step = module.prepare(x.as_subclass(OnGpu), given[rank]["weights"])
        step()
        x.neg_()  # the second step must not live on what the first was sent
        return step()

    sums = gpus.each(two_steps)
    wide = [given[0]["x"].double()], [[weight.double() for weight in given[0]["weights"]]]
    truth = pair.reference(0, *wide)
    assert all((out.double() - truth).norm() < pair.workload.tolerance * truth.norm() for out in sums)
    assert not any(gpus.raised.values())
    messages = 2 * 2 * pair.MICROBATCHES * ((size["layers"] if variant == VARIANTS[1] else ranks) - 1)
    assert len(gpus.raised) * 2 == len(held) == messages  # of two steps; each has a flag of its own


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_1f1b_keeps_no_more_microbatches_than_ranks(ahead: int) -> None:
    turns, kept, most = one_by_one(ahead), 0, 0
    for direction, _, _ in turns:
        kept += 1 if direction == pair.FORWARD else -1
        most = max(most, kept)
    assert (most, kept) == (ahead + 1, 0)
    assert sorted(turns) == sorted(pair.breadth_first(1))


# The ring of partial products: each sum visits all other ranks and comes home. A stream is the thread itself.

STEPS = 3


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
        mine = x[0, rank].clone()
        step, outs = ring.prepare(mine, w[rank]), list[Tensor]()
        for fresh in x[:, rank]:
            mine.copy_(fresh)
            out = step()
            assert isinstance(out, Tensor)
            outs.append(out.clone())
        return outs

    outs = ranks.each(of_rank)
    for turn, of_step in enumerate(x):
        for rank in range(count):
            torch.testing.assert_close(outs[rank][turn], reference(rank, list(of_step), list(w)))
