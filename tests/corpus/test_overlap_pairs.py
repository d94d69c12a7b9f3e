"""Chapter 11's pipelines, whose events a CPU ignores: an order of work that allows two streams at one buffer is a race.

Every operator runs, and is noted with its stream and with what that stream had waited for by then.
"""

import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from common.python.workload import Draw

VARIANTS = [
    "baseline_copy_compute_pipeline",
    "optimized_copy_compute_pipeline",
    "optimized_copy_compute_pipeline__two_stream",
    "peer_copy_compute_pipeline__prefetch",
]


class Stream:
    """`seen` counts the operators of each stream that are over before this one's next begins."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()

    def wait_stream(self, other: "Stream") -> None:
        self.seen |= other.seen

    def wait_event(self, event: "Event") -> None:
        self.seen |= event.seen


class Event:
    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()

    def record(self, stream: Stream) -> None:
        self.seen = stream.seen.copy()


@dataclass(frozen=True)
class Access:
    stream: int
    count: int
    first: int
    last: int
    write: bool


class Gpu(TorchDispatchMode):
    """Streams and events as torch.cuda has them, and the races between them."""

    def __init__(self) -> None:
        super().__init__()
        self.Stream, self.Event = Stream, Event
        self.current = Stream()
        self.accesses: list[Access] = []
        self.races: list[str] = []

    def current_stream(self) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        told = [*zip(function._schema.arguments, arguments)]
        told += [(each, (named or {}).get(each.name)) for each in function._schema.arguments[len(arguments) :]]
        touched = [(a, bool(s.alias_info and s.alias_info.is_write)) for s, a in told if isinstance(a, Tensor)]
        if any(write for _, write in touched):  # views alone touch no memory
            self.current.seen[id(self.current)] += 1
            for tensor, write in touched:
                self._touch(function, tensor, write)
        return function(*arguments, **(named or {}))

    def _touch(self, function: Any, tensor: Tensor, write: bool) -> None:
        me, seen = id(self.current), self.current.seen
        first = tensor.data_ptr()
        mine = Access(me, seen[me], first, first + tensor.nbytes, write)
        for other in self.accesses:
            overlap = other.first < mine.last and mine.first < other.last
            if overlap and (write or other.write) and seen[other.stream] < other.count:
                self.races.append(f"{function} on {tuple(tensor.shape)}")
        self.accesses.append(mine)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_two_streams_are_at_one_buffer_and_all_are_done_when_the_step_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, gpu = importlib.import_module(f"ch11.{name}"), Gpu()
    inputs = module.workload.inputs(Draw(torch.device("cpu"), 1, tmp_path), chunks=8, rows=3, width=5)
    monkeypatch.setattr(torch, "get_device_module", lambda device: gpu)
    step = module.prepare(**inputs)
    with gpu:
        for _ in range(2):
            inputs["batches"].neg_()  # new data, written by whoever calls the step
            step()
            last = {access.stream: access.count for access in gpu.accesses}
            assert all(gpu.current.seen[stream] >= count for stream, count in last.items()), "not joined"
    assert len(gpu.accesses) >= 2 * 8 * 4
    assert gpu.races == []
