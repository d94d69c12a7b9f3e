"""Whatever of the clocks a pair replaces is named and put back; the clocks themselves are tested on a GPU."""

import gc
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_workload import Prepares, each_call, workload
from torch import Tensor

from common.python.proof import originals
from common.python.timing import clock
from common.python.timing.sampler import Sampler


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    yield
    originals.restore()


@pytest.mark.parametrize(
    ("owner", "name", "label"),
    [
        (time, "perf_counter_ns", "time.perf_counter_ns"),
        (clock, "now_ns", "common.python.timing.clock.now_ns"),
        (clock.Clock, "device", "Clock.device"),
        (clock.Clock, "wall", "Clock.wall"),
        (clock.Clock, "flush", "Clock.flush"),
        (clock.Reading, "device_us", "Reading.device_us"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_what_tells_the_time_is_watched(owner: object, name: str, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *arguments: 0)
    assert originals.restore() == [label]
    assert getattr(owner, name) is before
    assert originals.restore() == []


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count what threads wait")
def test_a_thread_that_shares_its_core_is_not_alone_and_waits() -> None:
    cores, waited = os.sched_getaffinity(0), clock.waited_us()
    os.sched_setaffinity(0, {min(cores)})
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until, alone = time.monotonic() + 1.0, []
        while time.monotonic() < until:
            alone.append(clock.is_alone())
        assert not all(alone)
        assert clock.waited_us() - waited > 0.1e6
    finally:
        hog.kill()
        hog.wait()
        os.sched_setaffinity(0, cores)


def test_the_cpus_clock_reads_its_steps_and_not_what_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def passes(nanoseconds: int) -> tuple[()]:
        now[0] += nanoseconds
        return ()

    monkeypatch.setattr(clock, "now_ns", lambda: now[0])
    reading = clock.Clock(torch.device("cpu")).wall(lambda: passes(2_000), 3, lambda: now.append(now.pop() + 10**9))
    assert (reading, reading.device_us()) == (clock.Reading(host_us=6.0, wall_us=6.0), None)


def test_outputs_are_not_kept_alive(prepared: Prepares) -> None:
    alive: list[weakref.ref[Tensor]] = []

    def fresh(call: int, x: Tensor, w: Tensor) -> Tensor:
        assert sum(one() is not None for one in alive) <= 1, "at most the output of the last proof"
        alive.append(weakref.ref(out := torch.matmul(x, w)))
        return out

    prep = prepared(workload(), a=each_call(fresh))
    sampler = Sampler(clock.Clock(torch.device("cpu")), "device")
    sampler.warm(prep, ["a"], 0.0)
    taken = sampler.block(prep, ["a", "a", "a"], 8, [0])
    assert taken["proofs"]["a"][0].reason is None
    gc.collect()
    assert sum(one() is not None for one in alive) <= 1
