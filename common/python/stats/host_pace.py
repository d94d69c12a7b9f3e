"""The host's pace, as the time of a fixed loop, and its effect on times that include host work.

Where a neighbour works on the other half of the same core, the pace moves from 23 to 45 us and back within seconds
(measured on a shared H200 host), and a step that waits for the host moves with it.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import mean, stdev

from common.python.base.results import Block, PairResult
from common.python.stats.sampling_plan import FEWEST_ROUNDS

SLOW_HOST = "the host ran slow"
MOST_PACE = 1.3  # times the best pace, beyond which a host is slow
MOST_WAIT = 0.5  # of the samples' time, beyond which they tell of others' work
FEWEST_BLOCKS = 3  # for a standard deviation


def pace_reach(blocks: Sequence[Block], best_pace_us: float | None) -> float:
    """How much faster another run's host may be than these blocks': a difference of logs, 0 if unknown.

    Slow blocks, which count where too few others are left, raise the mean above that of the others (or the best).
    """
    logs = [math.log(max(block.paces)) for block in blocks if block.paces and block.discarded is None]
    if not best_pace_us or not logs:
        return 0.0
    quick = [log for log in logs if log <= math.log(MOST_PACE * best_pace_us)]
    return mean(logs) - (mean(quick) if quick else math.log(best_pace_us))


def pace_deviation(results: Iterable[PairResult]) -> float:
    """The standard deviation of the log of the pace over all blocks; 0 with fewer than three."""
    logs = [math.log(max(block.paces)) for result in results for block in result.blocks if block.paces]
    return stdev(logs) if len(logs) >= FEWEST_BLOCKS else 0.0


def is_crowded(block: Block) -> bool:
    """Whether the worker's threads, together, waited for a core for over half of the samples' time.

    Beside 8 busy loops on 2 cores a product of 75 us read 43 ms in every sample: one of its two threads waited. Such
    blocks had waits of 1.3 times their time and more, and those of short steps with one thread none.
    """
    taken_us = block.steps * sum(sample.wall_us or 0.0 for sample in block.samples)
    return block.waited_us > MOST_WAIT * taken_us


def discard_slow_host(result: PairResult) -> None:
    """Discard the blocks that were crowded, then those with a pace 1.3 times the best, if three rounds remain.

    Only where the host has a part in the time that counts. By the pace, recomputed on five recorded runs of an eager
    step against a graph's replay, the spread of their speedups fell from 56% to 4%.
    """
    if result.clock != "end_to_end" or not result.best_pace_us:
        return
    slow_us = MOST_PACE * result.best_pace_us
    kept = [block for block in result.blocks if block.discarded in (None, SLOW_HOST)]
    for is_slow in (is_crowded, lambda block: max(block.paces, default=0.0) > slow_us):
        rest = [block for block in kept if not is_slow(block)]
        enough = len({block.round for block in rest}) >= FEWEST_ROUNDS
        for block in kept:
            block.discarded = SLOW_HOST if enough and is_slow(block) else None
        kept = rest if enough else kept
