"""How a peak is timed: ways of doing the work race each other, and the best one runs until its rate is a steady one.

Samples follow each other without a gap, so that clocks and power are those of lasting work, and the figure is the
median of the second half of them. Where power matters, that is the `sustained` rate, and the figure is the median of
short bursts after rests: a step between pauses runs ahead of the power cap (on an H200, a bf16 product at 785 instead
of 678 TFLOP/s), and so do the steps that are held against it.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import median

import torch
from triton.errors import TritonError

from common.python.base.results import Telemetry
from common.python.peaks.store import Peak, Unit
from common.python.timing.telemetry import Monitor

SAMPLE_S = 0.003  # long against the resolution of events, half a microsecond
RACE_S, WARM_S = 0.05, 0.15
BURSTS, BURST_S, REST_S = 8, 0.02, 0.08
LONGEST_STEP_S = 0.025  # slow types stay with the small shapes: a burst of large ones would meet the power cap
FEWEST, MOST = 12, 600
READINGS = (0.5, 0.75, 1.0)  # where in a series NVML is read

Step = Callable[[], object]


class Unavailable(Exception):
    """This machine lacks what is to be measured."""


@dataclass(frozen=True)
class Way:
    """One way to do `work` (bytes, FLOPs, calls) in a step."""

    method: str
    work: float
    step: Step


@dataclass(frozen=True)
class Series:
    """Seconds of one step, in the order taken, and the GPU's state meanwhile."""

    times: list[float]
    states: list[Telemetry] = field(default_factory=list)


Timer = Callable[[Step, float, int], Series]  # (step, seconds to spend, fewest samples)


def device_timer(monitor: Monitor | None) -> Timer:
    """Times steps on the current stream, several to a sample where one is short."""

    def timer(step: Step, seconds: float, fewest: int) -> Series:
        step()
        start, stop = recorded(step, 1, 1)
        stop.synchronize()
        once = max(start.elapsed_time(stop) / 1e3, 1e-6)
        count = max(1, math.ceil(SAMPLE_S / once))
        samples = min(MOST, max(fewest, int(seconds / (count * once))))
        events = recorded(step, samples, count)
        states = []
        if monitor is not None and seconds > RACE_S:
            for share in READINGS:  # all is enqueued by now: reading leaves no gap
                events[int(share * (samples - 1))].synchronize()
                states.append(monitor.read())
        events[-1].synchronize()
        return Series([a.elapsed_time(b) / 1e3 / count for a, b in pairwise(events)], states)

    return timer


def recorded(step: Step, samples: int, count: int) -> list[torch.cuda.Event]:
    """The events between which lie so many samples of `count` steps each; all are enqueued, none is waited for."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(count):
            step()
        event.record()
    return events


def host_timer(settle: Step = lambda: None, monitor: Monitor | None = None) -> Timer:
    """Times steps by the host's clock until `settle` returns, one to a sample."""

    def timer(step: Step, seconds: float, fewest: int) -> Series:
        step()
        settle()
        times: list[float] = []
        states = []
        while len(times) < fewest or (sum(times) < seconds and len(times) < MOST):
            started = time.perf_counter()
            step()
            settle()
            times.append(time.perf_counter() - started)
        if monitor is not None:
            states.append(monitor.read())
        return Series(times, states)

    return timer


def best_way(name: str, unit: Unit, ways: Iterable[Way], timer: Timer, seconds: float, bursts: bool = False) -> Peak:
    """The peak of the fastest of several ways. Raises RuntimeError when none of them works.

    A way that fails, where another works, is named in `method`; one that cannot be made is the last. With `bursts`, the
    race and the figure are of bursts after rests, and a way is not tried whose step would be too long for one, at the
    rate of the best so far; clocks, power and throttling are those of the lasting work.
    """
    best: Way | None = None
    best_rate, failures = 0.0, list[str]()
    race, rest_s = ((BURST_S, 1), REST_S) if bursts else ((RACE_S, 3), 0.0)
    try:
        for way in ways:
            if bursts and best is not None and way.work / best_rate > LONGEST_STEP_S:
                continue
            try:
                if best is None:
                    timer(way.step, WARM_S, 1)  # or the first way would run at the clocks of a cool GPU
                time.sleep(rest_s)
                rate = way.work / median(timer(way.step, *race).times)
            except (RuntimeError, TritonError) as error:  # the latter where a kernel does not fit or compile
                failures.append(f"{way.method}: {error}".partition("\n")[0])
                continue
            if rate > best_rate:
                best, best_rate = way, rate
    except RuntimeError as error:  # such as too little memory for the next way's operands
        failures.append(str(error).partition("\n")[0])
    if best is None:
        raise RuntimeError("; ".join(failures) or "no way to measure it")
    method = "; ".join([best.method, *(f"failed: {text}" for text in failures)])
    series = timer(best.step, seconds, FEWEST)
    lasting = summarise(name, unit, best.work, series, method)
    if not bursts:
        return lasting
    times = []
    for _ in range(BURSTS):
        time.sleep(rest_s)
        times += timer(best.step, *race).times
    rested = summarise(name, unit, best.work, Series(times, series.states), method, unsteady=0.0)
    fastest = max(rested.fastest or 0.0, lasting.fastest or 0.0)
    return rested.model_copy(update={"sustained": lasting.value, "fastest": fastest})


def summarise(name: str, unit: Unit, work: float, series: Series, method: str, unsteady: float = 0.5) -> Peak:
    """The median of a series with its interval, less the `unsteady` share of samples at its start.

    In work a second; for the unit s in seconds a call, `work` being the calls of a step.
    """
    cost = unit == "s"
    figures = [seconds / work if cost else work / seconds for seconds in series.times]
    steady = figures[int(unsteady * len(figures)) :]
    low, high = median_interval(steady)
    clocks = [state.sm_mhz for state in series.states if state.sm_mhz is not None]
    powers = [state.power_w for state in series.states if state.power_w is not None]
    return Peak(
        name=name,
        unit=unit,
        value=median(steady),
        low=low,
        high=high,
        fastest=min(figures) if cost else max(figures),
        samples=len(steady),
        method=method,
        sm_mhz=median(clocks) if clocks else None,
        power_w=powers[-1] if powers else None,  # an average over the last second: the latest knows most of this work
        throttle=sorted({reason for state in series.states for reason in state.throttle}),
    )


def median_interval(values: list[float]) -> tuple[float, float]:
    """The order statistics between which the median lies with at least 95% confidence, whatever the distribution.

    The ranks are binomial. Fewer than six values cannot give 95%: their range is then all that can be said.
    """
    ordered, n = sorted(values), len(values)
    tails = accumulate(math.comb(n, rank) / 2**n for rank in range(n // 2))
    outer = max(sum(2 * tail <= 1 - 0.95 for tail in tails) - 1, 0)
    return ordered[outer], ordered[n - 1 - outer]
