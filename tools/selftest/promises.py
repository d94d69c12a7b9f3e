"""What `selftest` says of a promise, and when a count keeps one.

A promise about a share is kept if the observed share keeps it, over at least as many trials as a perfect record would
need to exclude every share that breaks it. It is refuted if the whole Clopper-Pearson interval breaks it. All else is
undecided.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from common.python.base.results import Manifest, Model, optional

CONFIDENCE = 0.95
STEPS = 10**9  # from a share of 0 to one of 1: as finely are ends of intervals found
Name = Literal["aa", "truth", "others", "cheats"]
NAMES: tuple[Name, ...] = ("aa", "truth", "others", "cheats")
Standing = Literal["kept", "refuted", "undecided", "not run"]


class Promise(Model):
    """One line of the table: what was promised, what was measured, and whether that keeps it."""

    experiment: Name
    promise: str
    measured: str
    bound: str
    standing: Standing
    hits: int | None = optional("where the promise is about a share: how often it was so")
    n: int | None = optional("out of how many")
    low: float | None = optional("95% Clopper-Pearson interval of the share")
    high: float | None = None
    note: str | None = None


class Report(Model):
    """All that is said about this machine; each experiment's raw numbers are in its own folder."""

    schema_version: int = 1
    manifest: Manifest
    device: str
    form: Literal["quick", "full"]
    seconds: dict[str, float] = Field(description="that each experiment took")
    promises: list[Promise]
    not_run: dict[str, str] = optional("experiments without a result, with why", {})
    failed: dict[str, str] = optional("experiments that ended with an error", {})


def standing(tried: bool, kept: bool, refuted: bool) -> Standing:
    """That of a promise which was `tried`: refuted where that is clear, else kept where that is, else undecided."""
    return "not run" if not tried else "refuted" if refuted else "kept" if kept else "undecided"


def promised_share(
    experiment: Name, promise: str, hits: int, n: int, bound: float, at_most: bool = False, trials: int = 0
) -> Promise:
    """The promise that at least, or at most, a share `bound` of so many `trials`, or of more, are hits."""
    enough = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - bound if at_most else bound))  # without a single miss
    count = max(enough, trials)
    low, high = clopper_pearson(hits, n)
    kept = n >= count and (hits <= bound * n if at_most else hits >= bound * n)
    return Promise(
        experiment=experiment,
        promise=promise,
        bound=f"{'at most' if at_most else 'at least'} {bound:.0%} of {count} or more",
        measured=f"{hits / max(1, n):.1%} ({hits} of {n}) [{low:.1%}, {high:.1%}]",
        standing=standing(tried=n > 0, kept=kept, refuted=low > bound if at_most else high < bound),
        hits=hits,
        n=n,
        low=low,
        high=high,
    )


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """The two-sided interval of a share of which `hits` of `n` independent trials are the evidence."""
    tail = (1 - CONFIDENCE) / 2
    return _first(lambda p: 1 - at_most(hits - 1, n, p) >= tail), _first(lambda p: at_most(hits, n, p) <= tail)


def at_most(hits: int, n: int, p: float) -> float:
    """P(X <= hits) for a binomial X of up to 1,000 trials with probability p."""
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(hits + 1))


def _first(holds: Callable[[float], bool]) -> float:
    """The share from which on it holds; 1 if it does for none."""
    return bisect_left(range(STEPS), True, key=lambda step: holds(step / STEPS)) / STEPS
