"""Latencies that serving is judged by, from a run of their own: the timed ones note nothing."""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from time import perf_counter
from typing import Any

import numpy
import torch

from common.python.workload import Metered, Output

Deliver = Callable[[Sequence[int]], None]  # hears after a pass which requests it gave a token, once for each token


Arrived = Callable[[int], int]  # waits for at least so many requests, in the order of their numbers; how many came
Passes = Iterator[list[tuple[int, int]]]  # request and position of each token in a pass


@dataclass(frozen=True)
class Arrivals:
    """When each request comes, and what it asks for: the most for its first token, and for the mean of the others."""

    times_ms: Sequence[float]
    first_token_ms: float
    token_ms: float

    def goodput(self, times_ms: Sequence[float], given: Sequence[Sequence[int]]) -> dict[str, float]:
        """The requests that got what they ask for: how many a second of the run, and their share of all."""
        got = dict[int, list[float]]()
        for time, requests in zip(times_ms, given):
            for request in requests:
                got.setdefault(request, []).append(time)
        good = sum(
            own[0] - self.times_ms[request] <= self.first_token_ms
            and own[-1] - own[0] <= self.token_ms * (len(own) - 1)
            for request, own in got.items()
        )
        return {"goodput requests/s": 1e3 * good / times_ms[-1], "within objective %": 100 * good / len(self.times_ms)}


def interactive(count: int) -> Arrivals:
    """2,000 requests a second, by one draw of a Poisson process, for a sixteenth of Llama-3.1-8B.

    MLPerf's scenario Server draws arrivals in this way (loadgen/test_settings.h in github.com/mlcommons/inference). For
    that model, "interactive", it wants the first token in 500 ms and the others in 30 (loadgen/mlperf.conf there).
    """
    gaps = Random(count)  # the same ones on every machine
    return Arrivals(list(accumulate(gaps.expovariate(2) for _ in range(count))), 500 / 16, 30 / 16)


def metered(serve: Callable[..., Output], device: torch.device, arrivals: Arrivals | None = None) -> Metered:
    """The step that serves once, and its latencies; every request is there when it begins.

    With arrivals, also those of a second run, in which `serve` gets `arrived` too and waits for requests by it.
    """

    def noted(times: Sequence[float] = ()) -> tuple[list[float], list[Sequence[int]]]:
        moments, given = [_moment(device)], list[Sequence[int]]()

        def note(requests: Sequence[int]) -> None:
            moments.append(_moment(device))
            given.append(requests)
            if times and device.type == "cuda":
                moments[-2].synchronize()  # the host asks who has arrived one pass ahead of the GPU, not many

        def arrived(least: int) -> int:
            while (now := bisect(times, 1e3 * (perf_counter() - begin))) < least:
                pass
            return now

        begin = perf_counter()
        serve(note, *[arrived] * bool(times))
        return _since_first(moments, device), given

    def metrics() -> dict[str, float]:
        told = latencies(*noted())
        if not arrivals:
            return told
        run = noted(arrivals.times_ms)
        later = {f"arriving {name}": value for name, value in latencies(*run, arrivals.times_ms).items()}
        return told | later | arrivals.goodput(*run)

    return Metered(lambda: serve(lambda requests: None), metrics)


def median_ms(work: Callable[[], object], times: int = 5) -> float:
    """Milliseconds that the host takes for `work`, the median of several; what it starts on a GPU does not count."""
    moments = [perf_counter()]
    for _ in range(times):
        work()
        moments.append(perf_counter())
    return 1e3 * float(numpy.median(numpy.diff(moments)))


def _moment(device: torch.device) -> Any:
    """A point of the current stream's work, or of the host's, where the device is one."""
    if device.type != "cuda":
        return perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _since_first(moments: list[Any], device: torch.device) -> list[float]:
    """Milliseconds from the first to each of the others."""
    if device.type != "cuda":
        return [1e3 * (moment - moments[0]) for moment in moments[1:]]
    torch.cuda.synchronize()
    return [moments[0].elapsed_time(moment) for moment in moments[1:]]


def latencies(
    times_ms: Sequence[float], given: Sequence[Sequence[int]], came_ms: Sequence[float] = ()
) -> dict[str, float]:
    """Time to first token over requests, time per token over all later tokens, and tokens a second.

    times_ms: of each pass since the run began; given: the requests it gave tokens; came_ms: when each request came, if
    not all at once. Tokens of one request that come together share the time since its last ones. Percentiles lie
    between the nearest two of the sorted times.
    """
    waits: dict[str, list[float]] = {"first token": [], "time per token": []}
    latest: dict[int, float] = {}
    for time, requests in zip(times_ms, given):
        for request, tokens in Counter(requests).items():
            if request in latest:
                waits["time per token"] += [(time - latest[request]) / tokens] * tokens
            else:
                waits["first token"].append(time - (came_ms[request] if came_ms else 0))
            latest[request] = time
    parts = [(name, of, q) for name, of in waits.items() if of for q in (50, 95, 99)]
    shown = {f"{name} p{q} ms": float(numpy.percentile(of, q)) for name, of, q in parts}
    return shown | {"tokens/s": 1e3 * sum(map(len, given)) / times_ms[-1]}
