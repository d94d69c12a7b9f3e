"""Chapter 4's pipeline on threads that stand for GPUs: what goes over its link there, and how long its bubbles are."""

import importlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ch04 import baseline_pipeline_schedule as pair
from ch04.optimized_pipeline_schedule__1f1b import one_by_one
from common.python.workload import Draw

VARIANTS = [
    "baseline_pipeline_schedule",
    "optimized_pipeline_schedule",
    "optimized_pipeline_schedule__1f1b",
]
SECONDS = 5.0  # until a rank that waits in vain gives up


class OnGpu(Tensor):
    """A tensor of the host that says it is on a GPU."""

    is_cuda = True


class Gpus:
    """As many ranks as threads. A flag that is raised twice, waited for in vain, or left standing is an error."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.here, self.changed = ranks, threading.local(), threading.Condition()
        self.buffers: dict[int, Tensor] = {}
        self.raised: dict[tuple[int, int, int], bool] = defaultdict(bool)  # by receiver, sender, channel
        self.together = threading.Barrier(ranks, timeout=SECONDS)
        self.parts: dict[int, Tensor] = {}

    def rank(self) -> int:
        return self.here.rank

    def empty(self, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
        self.buffers[self.rank()] = torch.full(tuple(shape), float("nan"), dtype=dtype).as_subclass(OnGpu)
        return self.buffers[self.rank()]

    def rendezvous(self, places: Tensor, group: object) -> SimpleNamespace:
        self.together.wait()
        return SimpleNamespace(get_buffer=self.get_buffer, put_signal=self.put_signal, wait_signal=self.wait_signal)

    def get_buffer(self, rank: int, shape: Any, dtype: torch.dtype) -> Tensor:
        assert self.here.stream is not None, "the copy is to run beside the products"
        return self.buffers[rank]

    def put_signal(self, to: int, channel: int) -> None:
        assert self.here.stream is not None, "a flag that overtakes its message"
        with self.changed:
            assert not self.raised[to, self.rank(), channel]
            self.raised[to, self.rank(), channel] = True
            self.changed.notify_all()

    def wait_signal(self, sender: int, channel: int) -> None:
        flag = self.rank(), sender, channel
        with self.changed:
            assert self.changed.wait_for(lambda: self.raised[flag], SECONDS), f"{flag} never came"
            self.raised[flag] = False

    def all_reduce(self, sums: Tensor) -> None:
        self.parts[self.rank()] = sums.clone()
        self.together.wait()
        sums.copy_(torch.stack(list(self.parts.values())).sum(dim=0))
        self.together.wait()

    @contextmanager
    def stream(self, stream: "Stream") -> Iterator[None]:
        assert stream.waited, "a message that sets out before it is made"
        self.here.stream, stream.waited = stream, False
        yield
        self.here.stream = None

    def run(self, work: Callable[[], Tensor], rank: int) -> Tensor:
        self.here.rank, self.here.stream = rank, None
        return work()


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
    module = importlib.import_module(f"ch04.{variant}")
    monkeypatch.setattr(module, "dist", dist, raising=False)
    monkeypatch.setattr(pair, "symmetric_memory", SimpleNamespace(empty=gpus.empty, rendezvous=gpus.rendezvous))
    for name, fake in (("Stream", Stream), ("current_stream", Stream), ("stream", gpus.stream)):
        monkeypatch.setattr(torch.cuda, name, fake)
    held: list[Tensor] = []  # back from the allocator until they have left
    monkeypatch.setattr(Tensor, "record_stream", lambda message, stream: held.append(message))
    given = [pair.inputs(Draw(torch.device("cpu"), 3, tmp_path, rank, ranks), **size) for rank in range(ranks)]

    def two_steps(x: Tensor, weights: list[Tensor]) -> Tensor:
        step = module.prepare(x.as_subclass(OnGpu), weights)
        step()
        x.neg_()  # the second step must not live on what the first was sent
        return step()

    with ThreadPoolExecutor(ranks) as threads:
        sums = list(threads.map(lambda rank: gpus.run(lambda: two_steps(**given[rank]), rank), range(ranks)))
    wide = [given[0]["x"].double()], [[weight.double() for weight in given[0]["weights"]]]
    truth = pair.reference(0, *wide)
    assert all((out.double() - truth).norm() < pair.workload.tolerance * truth.norm() for out in sums)
    assert not any(gpus.raised.values())
    messages = 2 * 2 * pair.MICROBATCHES * (ranks * (2 if variant == VARIANTS[1] else 1) - 1)
    assert len(gpus.raised) * 2 == len(held) == messages  # of two steps; each has a flag of its own


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_1f1b_keeps_no_more_microbatches_than_ranks(ahead: int) -> None:
    turns, kept, most = one_by_one(ahead), 0, 0
    for direction, _, _ in turns:
        kept += 1 if direction == pair.FORWARD else -1
        most = max(most, kept)
    assert (most, kept) == (ahead + 1, 0)
    assert sorted(turns) == sorted(pair.breadth_first(1))
