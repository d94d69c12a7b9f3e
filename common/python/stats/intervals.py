"""Intervals and verdicts from blocks of samples: rounds are the unit of evidence.

Where buffers land moves a copy by 0.4%, which no number of samples of one allocation shows. So the blocks of a round
give one value, and only rounds, each with its own allocations, count as independent.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from common.python.base.results import Block, ClockName, Interval, Spread, Verdict

MARGIN = 0.01  # the smallest difference that counts; intervals are kept narrower than this
OWN = 2 / 3  # of a round's variance, end to end: the error that all rounds of one run share
HOST_ROUNDS = 2  # rounds that the usual deviation of the host counts as
# Of rounds; on a host one is slow now and then.
MIDDLE: dict[ClockName, Callable[[Sequence[float]], float]] = {"device": np.mean, "end_to_end": np.median}


def compare(blocks: Sequence[Block], numerator: str, denominator: str, clock: ClockName) -> Interval | None:
    """Time of `numerator` over time of `denominator` with its 95% interval; None with fewer than two rounds."""
    return interval(round_log_ratios(blocks, numerator, denominator, clock), clock)


def round_log_ratios(blocks: Sequence[Block], numerator: str, denominator: str, clock: ClockName) -> list[float]:
    """One log ratio a round, in order: the median over all pairs of a sample of each variant.

    A few slow samples do not move the median, nor does linear drift, since a block is mirrored.
    """
    rounds = _round_logs(blocks, [numerator, denominator], clock)
    return [float(np.median(np.subtract.outer(above, below))) for above, below in rounds]


def round_log_times(blocks: Sequence[Block], variant: str, clock: ClockName) -> list[float]:
    """One log time a round, in order: the median over its samples, in microseconds. Drift does not cancel in these."""
    return [float(np.median(logs)) for [logs] in _round_logs(blocks, [variant], clock)]


def _round_logs(blocks: Sequence[Block], variants: Sequence[str], clock: ClockName) -> list[list[list[float]]]:
    """Each round's log times of each variant. A block that did not time all of them does not count."""
    rounds: dict[int, list[list[float]]] = defaultdict(lambda: [[] for _ in variants])
    for block in blocks:
        taken = [block.times(variant, clock) for variant in variants]
        if block.discarded is None and all(taken):
            for variant, times, logs in zip(variants, taken, rounds[block.round]):
                if min(times) <= 0:
                    raise ValueError(f"{variant} in round {block.round} took {min(times)} us: it must be above zero")
                logs.extend(map(math.log, times))
    return [rounds[index] for index in sorted(rounds)]


def interval(round_values: Sequence[float], clock: ClockName = "device", usual: float | None = None) -> Interval | None:
    """The ratio whose log is the middle of the rounds' log ratios; None with fewer than two rounds.

    The half-width is that of the mean's 95% t interval, so an outlying round widens it even where the middle is a
    median. With `usual` it is the interval that another run on such a host would fall into. A run has an error of its
    own beside those of its rounds, and a few rounds may agree by chance, so their variance is moderated by `usual`, the
    host's standard deviation of log ratios between rounds (the moderated t of Smyth, Statistical Applications in
    Genetics and Molecular Biology 3(1), 2004).
    """
    n = len(round_values)
    if n < 2:
        return None
    half = t_95(n - 1) * float(np.std(round_values, ddof=1)) / math.sqrt(n)
    if usual is not None:
        df = n - 1 + HOST_ROUNDS
        variance = ((n - 1) * float(np.var(round_values, ddof=1)) + HOST_ROUNDS * usual**2) / df
        half = t_95(df) * math.sqrt(variance * (1 / n + OWN))
    return of_logs(MIDDLE[clock](round_values), half, n)


def widened(found: Interval, half_width: float) -> Interval:
    """The interval with an independent error added that has this half-width of the log ratio."""
    half = math.hypot(math.log(found.high / found.low) / 2, half_width)
    return found.model_copy(update={"low": found.ratio * math.exp(-half), "high": found.ratio * math.exp(half)})


def of_logs(center: float, half: float, rounds: int) -> Interval:
    return Interval(ratio=math.exp(center), low=math.exp(center - half), high=math.exp(center + half), rounds=rounds)


@cache
def t_95(df: int) -> float:
    """The value that a Student t variable with `df` degrees of freedom, one or more, stays within in 95% of cases."""
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:  # until no float lies between them
        low, high = (middle, high) if _t_within(middle, df) < 0.95 else (low, middle)
    return math.sqrt(df) * math.tan(low)


def _t_within(angle: float, df: int) -> float:
    """P(|t| < sqrt(df) tan(angle)) by the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    cosine = math.cos(angle)
    odd = df % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, df + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total


def spread(times_us: Sequence[float]) -> Spread | None:
    """The distribution of one variant's times, if any; the standard deviation is the sample's, 0 for a single time."""
    if not times_us:
        return None
    times = np.asarray(times_us, dtype=float)
    q1, median, q3, p95, p99 = (float(value) for value in np.percentile(times, (25, 50, 75, 95, 99)))
    reach = 3 * (q3 - q1)
    outliers = int(np.count_nonzero((times < q1 - reach) | (times > q3 + reach)))
    std = float(times.std(ddof=1)) if times.size > 1 else 0.0
    mean = float(times.mean())
    return Spread(n=times.size, mean=mean, std=std, median=median, q1=q1, q3=q3, p95=p95, p99=p99, outliers=outliers)


def half_width(ratio: Interval) -> float:
    """Half the interval's width, relative to its ratio."""
    return (ratio.high - ratio.low) / (2 * ratio.ratio)


def verdict(speedup: Interval | None) -> Verdict:
    """The verdict that an interval of baseline time over a variant's time allows."""
    if speedup is None:
        return "inconclusive"
    if speedup.low > 1 + MARGIN:
        return "faster"
    if speedup.high < 1 - MARGIN:
        return "slower"
    return "same" if speedup.low >= 1 - MARGIN and speedup.high <= 1 + MARGIN else "inconclusive"


def control_ok(control: Interval) -> bool:
    """False only if the interval of the baseline against itself lies wholly outside the margin."""
    return control.low <= 1 + MARGIN and control.high >= 1 - MARGIN
