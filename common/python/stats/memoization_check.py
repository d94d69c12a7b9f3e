"""Whether a variant remembers answers, decided by an experiment of its own: a slow sample alone accuses nobody.

A trio times one step, in random order, on inputs untouched since a call, on inputs overwritten with the same values,
and on inputs overwritten with new values of the same distribution. Honest code takes as long in each. A memory keyed by
address or version counter is fast in the first only, one keyed by content in the first two.
"""

import math
from collections.abc import Sequence
from statistics import median

from common.python.base.results import PairResult, Trio
from common.python.stats.intervals import headline

SLOWER = 0.1  # of a step's time: how much longer samples on new inputs must take for the variant to be tested
VOTE = 1.2  # a trio votes against the variant where new inputs take this many times as long as untouched ones
HONEST, MEMORY = 0.5, 0.9  # chances of such a vote; noise alone moves the two arms alike
CONVICT, ACQUIT = 9.2, -6.4  # log likelihood ratios of Wald's sequential test: wrong once in 10,000, once in 600 times
LIMIT_PART = 0.25  # of a pair's time limit, for all of its variants together


def suspects(result: PairResult, names: Sequence[str]) -> list[str]:
    """The variants whose samples on new inputs took longer than their others by a tenth of a step."""
    return [name for name in names if _looks_slower(result, name)]


def _looks_slower(result: PairResult, name: str) -> bool:
    times: dict[bool, list[float]] = {True: [], False: []}
    steps = 1
    for block in result.blocks if result.clock else ():
        steps = block.steps  # only the first of them is on new inputs
        for sample in block.samples if block.discarded is None else ():
            us = headline(sample, result.clock or "device")
            if sample.variant == name and us is not None:
                times[sample.fresh].append(us)
    if not all(times.values()):
        return False
    seen = median(times[False])
    return (median(times[True]) - seen) * steps > SLOWER * seen


def remembers(trios: Sequence[Trio]) -> bool | None:
    """The decision of Wald's sequential test on these trios, in their order; None if it has not decided."""
    evidence = 0.0
    for trio in trios:
        evidence += math.log(MEMORY / HONEST) if _against(trio) else math.log((1 - MEMORY) / (1 - HONEST))
        if evidence >= CONVICT or evidence <= ACQUIT:
            return evidence > 0
    return None


def _against(trio: Trio) -> bool:
    return trio.new_us >= VOTE * trio.untouched_us


def accusation(trios: Sequence[Trio]) -> str | None:
    """Why the variant's times do not count, with the key of its memory; None unless the test convicts it."""
    if not remembers(trios):
        return None
    untouched, same, new = (median(times) for times in zip(*((t.untouched_us, t.same_us, t.new_us) for t in trios)))
    by_content = same - untouched < new - same  # inputs written anew are also colder, so this asks which is nearer
    key = "the values of its inputs" if by_content else "where inputs lie or how often they were written"
    times, votes = new / max(untouched, 1e-3), sum(map(_against, trios))
    slower = f"it takes {times:.1f} times as long on inputs that it has not seen, in {votes} of {len(trios)} trials"
    return f"{slower}: it remembers answers by {key}"


def undecided(result: PairResult) -> list[str]:
    """A note for each variant that looked slower on new inputs and was neither convicted nor acquitted."""
    notes = []
    for row in result.variants:
        if row.status == "measured" and remembers(row.trios) is None and suspects(result, [row.name]):
            tried = f"{len(row.trios)} trials could not tell" if row.trios else "this could not be tested here"
            notes.append(f"{row.name} took longer on new inputs; whether it remembers answers: {tried}")
    return notes
