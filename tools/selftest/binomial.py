"""What a count says of a promised share: its Clopper-Pearson interval, and whether the promise is kept.

A promise about a share is kept if the observed share keeps it, over at least as many trials as a perfect record would
need to exclude every share that breaks it. It is refuted if the whole interval breaks it. All else is undecided.
"""

import math
from collections.abc import Callable

from tools.selftest.models import Name, Promise, standing

CONFIDENCE = 0.95


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """The two-sided interval of a share of which `hits` of `n` independent trials are the evidence."""
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else _root(lambda p: 1 - at_most(hits - 1, n, p) < tail)
    high = 1.0 if hits == n else _root(lambda p: at_most(hits, n, p) > tail)
    return low, high


def at_most(hits: int, n: int, p: float) -> float:
    """P(X <= hits) for a binomial X of up to 1,000 trials with probability p."""
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(hits + 1))


def _root(below: Callable[[float], bool]) -> float:
    """The share up to which `below` holds."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high and high - low > 1e-12:
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def fewest(share: float) -> int:
    """Trials without a single miss that would exclude, with 95% confidence, every share of hits below this one."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


def promised_share(experiment: Name, promise: str, hits: int, n: int, bound: float, at_most: bool = False) -> Promise:
    """The promise that at least, or at most, a share `bound` of trials are hits."""
    count = fewest(1 - bound if at_most else bound)
    words = f"{'at most' if at_most else 'at least'} {bound:.0%} of {count} or more"
    low, high = clopper_pearson(hits, n) if n else (0.0, 1.0)
    kept = n >= count and (hits <= bound * n if at_most else hits >= bound * n)
    refuted = low > bound if at_most else high < bound
    measured = f"{hits / max(1, n):.1%} ({hits} of {n}) [{low:.1%}, {high:.1%}]"
    stands = standing(tried=n > 0, kept=kept, refuted=refuted)
    found = Promise(experiment=experiment, promise=promise, bound=words, measured=measured, standing=stands)
    return found.model_copy(update={"hits": hits, "n": n, "low": low, "high": high}) if n else found
