"""Whether a variant remembers answers. An experiment of its own decides: a slow sample alone accuses nobody.

A trio times one step on inputs untouched since a call, on inputs overwritten with the values that they hold, and on
inputs overwritten with new values of the same distribution, in random order. Honest code takes as long in each. A
memory keyed by address or version counter is fast in the first only, one keyed by content in the first two.
"""

import math
from collections.abc import Sequence
from statistics import median

from common.python.base.results import PairResult, Trio
from common.python.stats.intervals import headline

SLOWER = 0.1  # of a step's time: what samples on new inputs must take more, to test the variant
VOTE = 1.2  # times as long on new inputs as on untouched ones: a trio that votes so is against the variant
HONEST, MEMORY = 0.5, 0.9  # chances of such a vote; noise alone moves the two arms alike
CONVICT, ACQUIT = 9.2, -3.9  # log likelihood ratios of Wald's sequential test: one false conviction in 10,000
LIMIT_PART = 0.25  # of a pair's time limit, for all of its variants together


def suspects(result: PairResult, names: Sequence[str]) -> list[str]:
    """The variants whose samples on new inputs took longer than their others, by a tenth of a step."""
    return [name for name in names if _looks_slower(result, name)]


def _looks_slower(result: PairResult, name: str) -> bool:
    times: dict[bool, list[float]] = {True: [], False: []}
    steps = 1
    for block in result.blocks if result.clock else ():
        steps = block.steps  # of which the first alone is on new inputs
        for sample in block.samples if block.discarded is None else ():
            us = headline(sample, result.clock or "device")
            if sample.variant == name and us is not None:
                times[sample.fresh].append(us)
    if not all(times.values()):
        return False
    seen = median(times[False])
    return (median(times[True]) - seen) * steps > SLOWER * seen


def remembers(trios: Sequence[Trio]) -> bool | None:
    """What Wald's sequential test says of these trios, in their order; None if it has not decided."""
    evidence = 0.0
    for trio in trios:
        evidence += math.log(MEMORY / HONEST) if _against(trio) else math.log((1 - MEMORY) / (1 - HONEST))
        if evidence >= CONVICT or evidence <= ACQUIT:
            return evidence > 0
    return None


def _against(trio: Trio) -> bool:
    return trio.new_us >= VOTE * trio.untouched_us


def accusation(trios: Sequence[Trio]) -> str | None:
    """Why the variant's times do not count, if it remembers answers, and by what they are found again."""
    if not remembers(trios):
        return None
    untouched, same, new = (median(times) for times in zip(*((t.untouched_us, t.same_us, t.new_us) for t in trios)))
    key = "where inputs lie or how often they were written" if same >= VOTE * untouched else "the values of its inputs"
    votes = f"{sum(map(_against, trios))} of {len(trios)} trials"
    return f"it takes {new / max(untouched, 1e-3):.1f} times as long on inputs that it has not seen, in {votes}: " + (
        f"it remembers answers by {key}"
    )


def undecided(result: PairResult) -> list[str]:
    """A note for each variant that looked slower on new inputs and was neither accused nor acquitted."""
    notes = []
    for row in result.variants:
        if row.status == "measured" and remembers(row.trios) is None and suspects(result, [row.name]):
            tried = f"{len(row.trios)} trials could not tell" if row.trios else "this could not be tested here"
            notes.append(f"{row.name} took longer on new inputs; whether it remembers answers: {tried}")
    return notes
