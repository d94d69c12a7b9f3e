from collections.abc import Iterator

import pytest
from triton.runtime.errors import OutOfResources

from common.python.base.results import Telemetry
from common.python.peaks.sampling import Series, Step, Way, best_way, median_interval, summarise


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
