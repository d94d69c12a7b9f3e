"""Two sets of rounds that were not taken in turns: their times are compared as they are, and drift does not cancel."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from common.python.base.results import Block, ClockName, Interval
from common.python.stats.intervals import headline, of_logs, t_quantile


def round_log_times(blocks: Sequence[Block], variant: str, clock: ClockName) -> list[float]:
    """One log time a round, in order: the median over its samples, in microseconds. Drift does not cancel in these."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for block in blocks:
        for sample in block.samples if block.discarded is None else ():
            time = headline(sample, clock)
            if sample.variant == variant and time is not None and time > 0:
                rounds[block.round].append(math.log(time))
    return [float(np.median(rounds[index])) for index in sorted(rounds)]


def welch(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """The ratio of two sets of unpaired rounds, given their log times, with Welch's 95% t interval.

    None where a side has fewer than two rounds; `rounds` is the smaller count. The degrees of freedom are rounded
    down, which widens the interval.
    """
    fewer = min(len(above), len(below))
    if fewer < 2:
        return None
    shares = [(float(np.var(side, ddof=1)) / len(side), len(side) - 1) for side in (above, below)]
    variance = sum(share for share, _ in shares)
    df = variance**2 / sum(share**2 / own for share, own in shares) if variance > 0 else fewer - 1
    return of_logs(float(np.mean(above) - np.mean(below)), t_quantile(0.95, int(df)) * math.sqrt(variance), fewer)
