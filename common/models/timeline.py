"""Latencies that serving is judged by, from a run of their own: the timed ones note nothing."""

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy
import torch

from common.python.workload import Metered, Output

Deliver = Callable[[Sequence[int]], None]  # hears after a pass which requests it gave a token, once for each token


def metered(serve: Callable[[Deliver], Output], device: torch.device) -> Metered:
    """The step that serves once, and its latencies; every request is there when it begins."""

    def metrics() -> dict[str, float]:
        moments, given = [_moment(device)], list[Sequence[int]]()

        def note(requests: Sequence[int]) -> None:
            moments.append(_moment(device))
            given.append(requests)

        serve(note)
        return latencies(_since_first(moments, device), given)

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


def latencies(times_ms: Sequence[float], given: Sequence[Sequence[int]]) -> dict[str, float]:
    """Time to first token over requests, time per token over all later tokens, and tokens a second.

    times_ms: of each pass since the requests arrived; given: the requests it gave tokens. Tokens of one request that
    come together share the time since its last ones. Percentiles lie between the nearest two of the sorted times.
    """
    waits: dict[str, list[float]] = {"first token": [], "time per token": []}
    latest: dict[int, float] = {}
    for time, requests in zip(times_ms, given):
        for request, tokens in Counter(requests).items():
            if request in latest:
                waits["time per token"] += [(time - latest[request]) / tokens] * tokens
            else:
                waits["first token"].append(time)
            latest[request] = time
    parts = [(name, of, q) for name, of in waits.items() if of for q in (50, 95, 99)]
    shown = {f"{name} p{q} ms": float(numpy.percentile(of, q)) for name, of, q in parts}
    return shown | {"tokens/s": 1e3 * sum(map(len, given)) / times_ms[-1]}
