"""What samples become; host memory and disk are measured for real here, at sizes that take milliseconds."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from triton.runtime.errors import OutOfResources

from common.python.base.results import Telemetry
from common.python.peaks import host
from common.python.peaks.host import CHUNK, MIB, DiskFile, memory_ways
from common.python.peaks.sampling import (
    Series,
    Step,
    Unavailable,
    Way,
    best_way,
    host_timer,
    median_interval,
    summarise,
)
from common.python.requirements import reads_directly


# The ranks of the usual table of nonparametric intervals of a median, for 95%.
@pytest.mark.parametrize(
    ("n", "low", "high"), [(3, 1, 3), (6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (100, 40, 61)]
)
def test_the_interval_of_a_median_has_the_ranks_of_the_table(n: int, low: int, high: int) -> None:
    shuffled = [float((7 * rank) % n + 1) for rank in range(n)] if n % 7 else [float(rank + 1) for rank in range(n)]
    assert sorted(shuffled) == [float(rank + 1) for rank in range(n)]
    assert median_interval(shuffled) == (low, high)


def test_a_rate_is_the_median_of_the_second_half_and_its_best_sample_is_of_all() -> None:
    times = [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 5.0, 5.0, 8.0, 8.0]  # the power cap comes down on it
    states = [
        Telemetry(sm_mhz=1980, power_w=500.0),
        Telemetry(sm_mhz=1700, power_w=690.0, throttle=["sw_power_cap"]),
        Telemetry(sm_mhz=None, power_w=None),
    ]
    found = summarise("bf16", "FLOP/s", 400.0, Series(times, states), "by hand")
    assert (found.value, found.low, found.high, found.fastest) == (80.0, 50.0, 100.0, 400.0)
    assert (found.samples, found.method) == (6, "by hand")
    assert (found.sm_mhz, found.power_w, found.throttle) == (1840.0, 690.0, ["sw_power_cap"])


class Bench:
    """Ways that take a known time, and a timer that knows it; a negative time is a way that fails."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds

    def ways(self) -> Iterator[Way]:
        return (Way(name, 1.0, lambda name=name: name) for name in self.seconds)  # type: ignore[misc]

    def timer(self, step: Step, seconds: float, fewest: int) -> Series:
        name = str(step())
        if self.seconds[name] == -2.0:
            raise OutOfResources(2, 1, "shared memory")
        if self.seconds[name] < 0:
            raise RuntimeError(f"{name} is not supported\nand more")
        return Series([self.seconds[name]] * fewest)


def test_a_way_that_fails_is_named_and_where_all_fail_each_says_why() -> None:
    some = Bench(broken=-1.0, large=-2.0, whole=1.0)
    assert best_way("fp8", "FLOP/s", some.ways(), some.timer, 1.0).method.startswith(
        "whole; failed: broken: broken is not supported; failed: large: out of resource: shared memory"
    )
    none = Bench(a=-1.0, b=-1.0)
    with pytest.raises(RuntimeError, match="a: a is not supported; b: b is not supported"):
        best_way("fp8", "FLOP/s", none.ways(), none.timer, 1.0)


@pytest.mark.parametrize("name", host.BUFFERS)
def test_host_memory_is_measured_at_a_rate_that_memory_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "buffer_bytes", lambda: 16 * MIB)
    found = best_way(name, "B/s", memory_ways(name), host_timer(), 0.02)
    assert 0.2e9 < found.value < 5e12  # from a busy embedded board to a cache
    assert (found.low or 0) <= found.value <= (found.high or 0) <= (found.fastest or 0)
    assert "threads" in found.method


@pytest.mark.parametrize(("memory_gib", "buffer"), [(64, 1024), (1, 64), (0.01, 8)])
def test_a_buffer_is_what_memory_allows(memory_gib: float, buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_memory", lambda: int(memory_gib * 1024 * MIB))
    assert host.buffer_bytes() == buffer * MIB


@pytest.mark.skipif(not reads_directly(Path(tempfile.gettempdir())), reason="the scratch folder takes no O_DIRECT")
def test_what_is_written_to_the_disk_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "BATCHES", 2)
    disk = DiskFile()
    written = [bytes(page) for page in disk.pages]
    disk.move(write=True)
    disk.move(write=True)  # the file's end: the next batch is the first one again
    for page in disk.pages:
        page[:] = bytes(CHUNK)
    disk.move(write=False)
    assert [bytes(page) for page in disk.pages] == written
    assert fcntl.fcntl(disk.file, fcntl.F_GETFL) & os.O_DIRECT


def test_where_the_scratch_folder_is_on_no_disk_there_is_no_peak_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "reads_directly", lambda folder: False)
    with pytest.raises(Unavailable, match="is none: set TMPDIR"):
        DiskFile()
