"""Chapter 4's pipeline on threads that stand for GPUs: what goes over its link there, and how long its bubbles are."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from threads_as_ranks import Ranks
from torch import Tensor

from ch04 import baseline_pipeline_schedule as pair
from ch04.optimized_pipeline_schedule__1f1b import one_by_one
from common.python.workload import Draw

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
    module = importlib.import_module(f"ch04.{variant}")
    monkeypatch.setattr(module, "dist", dist, raising=False)
    monkeypatch.setattr(pair, "symmetric_memory", gpus)
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
