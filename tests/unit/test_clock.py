"""Whatever of the clocks a pair replaces is named and put back; the clocks themselves are tested on a GPU."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from common.python.proof import originals
from common.python.timing import clock


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    yield
    originals.restore()


@pytest.mark.parametrize(
    ("owner", "name", "label"),
    [
        (time, "perf_counter_ns", "time.perf_counter_ns"),
        (clock, "now_ns", "common.python.timing.clock.now_ns"),
        (clock.CpuClock, "wall", "CpuClock.wall"),
        (clock.GpuClock, "device", "GpuClock.device"),
        (clock.GpuClock, "wall", "GpuClock.wall"),
        (clock.GpuClock, "flush", "GpuClock.flush"),
        (clock.Pending, "read", "Pending.read"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_what_tells_the_time_is_watched(owner: object, name: str, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *arguments: 0)
    assert originals.restore() == [label]
    assert getattr(owner, name) is before
    assert originals.restore() == []


def test_the_cpus_clock_reads_its_steps_and_not_what_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def passes(nanoseconds: int) -> tuple[()]:
        now[0] += nanoseconds
        return ()

    monkeypatch.setattr(clock, "now_ns", lambda: now[0])
    reading = clock.CpuClock().wall(lambda: passes(2_000), 3, lambda: now.append(now.pop() + 10**9))
    assert reading == clock.Reading(device_us=None, wall_us=6.0, host_us=6.0)


class Gpu:
    """A device on which a small kernel takes so many microseconds, one after the other; the last for ever."""

    def __init__(self, *took_us: float) -> None:
        self.took_us, self.now, self.asked, self.paused = list(took_us), 0.0, 0, 0

    def now_ns(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1e9 * seconds
        self.paused += 1

    def synchronize(self) -> None:
        if self.paused > self.asked:
            self.asked += 1
            self.now += 1e3 * (self.took_us.pop(0) if len(self.took_us) > 1 else self.took_us[0])


@pytest.mark.parametrize(
    ("took_us", "done", "asked"),
    [
        ((40.0,), True, 6),
        ((60_000.0, 40.0), True, 7),
        ((40.0, 40.0, 60_000.0, 40.0), True, 9),
        ((60_000.0,), False, 9),
    ],
    ids=["device is idle", "other work ends", "other work is seen late", "other work stays"],
)
def test_others_are_on_the_device_until_a_small_kernel_is_quick_several_times(
    took_us: tuple[float, ...], done: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, zeros = Gpu(*took_us), torch.zeros
    monkeypatch.setattr(clock, "now_ns", gpu.now_ns)
    monkeypatch.setattr(clock.time, "sleep", gpu.sleep)
    monkeypatch.setattr(clock.torch.cuda, "synchronize", gpu.synchronize)
    places = []

    def place(n: int, dtype: torch.dtype, device: str = "the caller's default", pin_memory: bool = False) -> Any:
        places.append((device, pin_memory))
        return zeros(n, dtype=dtype, device="cpu")

    monkeypatch.setattr(clock.torch, "zeros", place)
    assert clock.await_others(0.5) is done
    assert gpu.asked == asked
    assert places == [("cuda", False), ("cpu", True)], "Inductor warms a graph up with the GPU as the default device"


@pytest.mark.parametrize("late", [True, False])
def test_a_reading_says_whether_the_host_was_late_for_it(late: bool) -> None:
    class Event:
        def synchronize(self) -> None: ...

        def elapsed_time(self, other: "Event") -> float:
            return 0.25

    event: Any = Event()
    assert clock.Pending(event, event, 4.0, late).read() == clock.Reading(250.0, None, 4.0, late)
