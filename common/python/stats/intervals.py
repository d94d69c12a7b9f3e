"""Samples to verdicts: mirrored blocks give log ratios, rounds are the unit, and an interval over rounds decides.

Where buffers land moves a copy by 0.4%, and no number of samples of one allocation can see that. So the blocks of a
round fold into one value, and only rounds, each with allocations of its own, count as independent.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from common.python.base.results import Block, ClockName, Interval, Sample, Spread, Verdict

NORMAL_95 = 1.96  # standard deviations to either side that hold 95% of a normal variable
MARGIN = 0.01  # what a reader cares about; intervals are kept narrower than this
OWN = 2 / 3  # of a round's variance, end to end: what the run errs by itself, and a median more than a mean
HOST_ROUNDS = 2  # which what the host's pace says of the rounds' deviation counts as much as
STEADY = 0.01  # difference of two windows of warming up that is none
FALLING, RISING = -1.0, 2.0  # trends, in standard deviations of noise, that are none: a cold start falls
MIDDLE: dict[ClockName, Callable[[Sequence[float]], float]] = {  # of rounds: a host has a slow one now and then
    "device": lambda values: float(np.mean(values)),
    "end_to_end": lambda values: float(np.median(values)),
}


def compare(blocks: Sequence[Block], numerator: str, denominator: str, clock: ClockName) -> Interval | None:
    """Time of `numerator` over time of `denominator`, with its 95% interval; None with fewer than two rounds."""
    return interval(round_log_ratios(blocks, numerator, denominator, clock), middle=MIDDLE[clock])


def round_log_ratios(blocks: Sequence[Block], numerator: str, denominator: str, clock: ClockName) -> list[float]:
    """One log ratio a round, in order: the median over the ratios of each sample to each of the other variant's.

    A few slow samples do not move that median. In a mirrored block linear drift moves as many ratios up as down, so
    that it does not move the median either. A block that did not time both does not count.
    """
    rounds: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for block in blocks:
        above, below = _logs(block, numerator, clock), _logs(block, denominator, clock)
        if block.discarded is None and above and below:
            rounds[block.round][0].extend(above)
            rounds[block.round][1].extend(below)
    return [float(np.median(np.subtract.outer(*rounds[index]))) for index in sorted(rounds)]


def _logs(block: Block, variant: str, clock: ClockName) -> list[float]:
    taken = [headline(sample, clock) for sample in block.samples if sample.variant == variant]
    times = [time for time in taken if time is not None]
    if len(times) < len(taken):  # a block that lost one of a pair is no longer mirrored
        return []
    if times and min(times) <= 0:
        raise ValueError(f"{variant} in round {block.round} took {min(times)} us: a time must be above zero")
    return [math.log(time) for time in times]


def _cells(blocks: Sequence[Block], clock: ClockName) -> dict[tuple[int, str], list[float]]:
    """Log times by round and variant."""
    cells: dict[tuple[int, str], list[float]] = defaultdict(list)
    for block in blocks:
        for sample in block.samples if block.discarded is None else ():
            time = headline(sample, clock)
            if time is not None and time > 0:
                cells[block.round, sample.variant].append(math.log(time))
    return cells


def headline(sample: Sample, clock: ClockName) -> float | None:
    """The time of a sample on the clock that a workload is judged by."""
    return sample.device_us if clock == "device" else sample.wall_us


def interval(
    round_values: Sequence[float],
    confidence: float = 0.95,
    middle: Callable[[Sequence[float]], float] = MIDDLE["device"],
) -> Interval | None:
    """The ratio whose log is the middle of the rounds' log ratios, by default their mean; None for fewer than two.

    To both sides it has the half-width of the mean's t interval, in which a round that stands out counts in full.
    """
    n = len(round_values)
    if n < 2:
        return None
    center = middle(round_values)
    half = t_quantile(confidence, n - 1) * float(np.std(round_values, ddof=1)) / math.sqrt(n)
    return Interval(ratio=math.exp(center), low=math.exp(center - half), high=math.exp(center + half), rounds=n)


def another_run(round_values: Sequence[float], usual: float) -> Interval | None:
    """The interval as well as another run on such a host would know it, end to end; None for fewer than two rounds.

    A run errs by its rounds and by itself. Three rounds may agree by chance: so their variance is moderated by what
    is `usual` there, a standard deviation of their log ratios (the moderated t of Smyth, Statistical Applications in
    Genetics and Molecular Biology 3(1), 2004).
    """
    n = len(round_values)
    if n < 2:
        return None
    center, df = MIDDLE["end_to_end"](round_values), n - 1 + HOST_ROUNDS
    variance = ((n - 1) * float(np.var(round_values, ddof=1)) + HOST_ROUNDS * usual**2) / df
    half = t_quantile(0.95, df) * math.sqrt(variance * (1 / n + OWN))
    return Interval(ratio=math.exp(center), low=math.exp(center - half), high=math.exp(center + half), rounds=n)


def widened(found: Interval, half_width: float) -> Interval:
    """The interval with an error that all of its rounds share, of this half-width of the log ratio, added."""
    half = math.hypot(math.log(found.high / found.low) / 2, half_width)
    return found.model_copy(update={"low": found.ratio * math.exp(-half), "high": found.ratio * math.exp(half)})


def round_log_times(blocks: Sequence[Block], variant: str, clock: ClockName) -> list[float]:
    """One log time a round, in order: the median over its samples. Microseconds. Nothing cancels drift in these."""
    cells = _cells(blocks, clock)
    return [float(np.median(cells[key])) for key in sorted(cells) if key[1] == variant]


def welch(above: Sequence[float], below: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The ratio whose log is the difference of two means of unpaired round values, with Welch's t interval.

    None where a side has fewer than two rounds. `rounds` is of the side that has fewer; the degrees of freedom are
    rounded down, which widens the interval.
    """
    fewer = min(len(above), len(below))
    if fewer < 2:
        return None
    mean = float(np.mean(above) - np.mean(below))
    shares = [(float(np.var(side, ddof=1)) / len(side), len(side) - 1) for side in (above, below)]
    variance = sum(share for share, _ in shares)
    df = variance**2 / sum(share**2 / own for share, own in shares) if variance > 0 else fewer - 1
    half = t_quantile(confidence, int(df)) * math.sqrt(variance)
    return Interval(ratio=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), rounds=fewer)


@cache
def t_quantile(confidence: float, df: int) -> float:
    """The t that a Student variable of `df` degrees of freedom stays within, on both sides, with this confidence."""
    if not 0.0 < confidence < 1.0 or df < 1:
        raise ValueError(f"confidence {confidence} must be inside (0, 1) and df {df} at least 1")
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:  # until no float lies between them
        low, high = (middle, high) if _t_within(middle, df) < confidence else (low, middle)
    return math.sqrt(df) * math.tan(low)


def _t_within(angle: float, df: int) -> float:
    """P(|t| < sqrt(df) tan(angle)): finite sums for whole df, Abramowitz and Stegun 26.7.3 and 26.7.4."""
    cosine = math.cos(angle)
    odd = df % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, df + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total


def spread(times_us: Sequence[float]) -> Spread:
    """How the times of one variant lie; the standard deviation is the sample's, 0 for a single time."""
    if not len(times_us):
        raise ValueError("a spread needs at least one time")
    times = np.asarray(times_us, dtype=float)
    q1, median, q3, p95, p99 = (float(value) for value in np.percentile(times, (25, 50, 75, 95, 99)))
    reach = 3 * (q3 - q1)
    return Spread(
        n=times.size,
        mean=float(times.mean()),
        std=float(times.std(ddof=1)) if times.size > 1 else 0.0,
        median=median,
        q1=q1,
        q3=q3,
        p95=p95,
        p99=p99,
        outliers=int(np.count_nonzero((times < q1 - reach) | (times > q3 + reach))),
    )


def trend(values: Sequence[float]) -> float:
    """Mann and Kendall's statistic, below zero for what falls: about N(0, 1) where the order of values says nothing."""
    n = len(values)
    signs = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    return signs / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def settled(earlier: list[float], later: list[float]) -> bool:
    """Whether the medians of two windows agree within 1%, or no trend over both stands out from their noise."""
    before = float(np.median(earlier))
    agree = bool(abs(float(np.median(later)) - before) <= STEADY * before)
    return agree or FALLING < trend([*earlier, *later]) < RISING


def half_width(ratio: Interval) -> float:
    """Half the interval's width, relative to its ratio: what sampling goes on to shrink."""
    return (ratio.high - ratio.low) / (2 * ratio.ratio)


def verdict(speedup: Interval | None, margin: float = MARGIN) -> Verdict:
    """What an interval of baseline time over a variant's time allows to be said; nothing, if there is none."""
    if speedup is None:
        return "inconclusive"
    if speedup.low > 1 + margin:
        return "faster"
    if speedup.high < 1 - margin:
        return "slower"
    return "same" if speedup.low >= 1 - margin and speedup.high <= 1 + margin else "inconclusive"


def memory_verdict(ratio: float, margin: float = MARGIN) -> Verdict:
    """The same for baseline peak memory over a variant's, which repeats exactly and has no interval."""
    if ratio > 1 + margin:
        return "smaller"
    return "larger" if ratio < 1 - margin else "same"


def control_ok(control: Interval, margin: float = MARGIN) -> bool:
    """Whether the baseline against itself may be 1: only an interval wholly outside the margin says that it is not."""
    return control.low <= 1 + margin and control.high >= 1 - margin


def escaped_us(device_us: float, wall_us: float, host_us: float) -> float:
    """Wall time that neither the host's enqueueing nor device time explains: the trace of work on another stream."""
    return max(0.0, wall_us - host_us - device_us)
