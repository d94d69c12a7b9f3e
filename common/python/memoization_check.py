"""Whether a variant remembers answers. An experiment of its own decides: a slow sample alone accuses nobody.

A trio times one step on inputs untouched since a call, on inputs overwritten with the values that they hold, and on
inputs overwritten with new values of the same distribution, in random order. Honest code takes as long in each. A
memory keyed by address or version counter is fast in the first only, one keyed by content in the first two.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from common.python.results import PairResult, Trio
from common.python.statistics import headline

if TYPE_CHECKING:  # the parent process, which decides, has no torch
    from common.python.preparation import Preparation
    from common.python.workload import Inputs

SLOWER = 0.1  # of a step's time: what samples on new inputs must take more, to test the variant
VOTE = 1.2  # times as long on new inputs as on untouched ones: a trio that votes so is against the variant
HONEST, MEMORY = 0.5, 0.9  # chances of such a vote; noise alone moves the two arms alike
CONVICT, ACQUIT = 9.2, -3.9  # log likelihood ratios of Wald's sequential test: one false conviction in 10,000
CALLS = 6  # of the step in a trio
LIMIT_PART = 0.25  # of a pair's time limit, for all of its variants together
FLUSH_ELEMENTS = 1 << 24  # 64 MiB of float32, read before each step on a CPU; the GPU's clock flushes by itself


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


def run_trios(
    prep: "Preparation", names: Sequence[str], timed_us: Callable[[str], float], limit_s: float
) -> dict[str, list[Trio]]:
    """In a worker: time trios of these variants in turn until each is decided, or for `limit_s` seconds in all.

    `timed_us` calls a variant's step once. None are run on several ranks, which would have to agree on the order, and
    where inputs are files, since rewriting those changes how fast a disk reads them.
    """
    found: dict[str, list[Trio]] = {name: [] for name in names}
    if prep.ranks.size > 1 or prep.files:
        return found
    import torch

    until = time.perf_counter() + limit_s
    try:
        arms = Arms(prep)
        took_s = {name: CALLS * (_seconds(timed_us, name) + arms.drawing_s) for name in names}
        left = [*names]
        while left:
            left = [name for name in left if time.perf_counter() + took_s[name] <= until]
            for name in left:
                took_s[name] = _seconds(lambda one: found[one].append(arms.trio(one, timed_us)), name)
            left = [name for name in left if remembers(found[name]) is None]
    except torch.OutOfMemoryError:
        pass  # no room for copies of the inputs: undecided
    return found


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


class Arms:
    """The inputs that variants share, what these hold, and what they will hold next."""

    def __init__(self, prep: "Preparation") -> None:
        """Fill the inputs with fresh values; the frozen ones stay as they are."""
        import torch

        from common.python.preparation import clone, overwrite

        self.overwrite, self.prep = overwrite, prep
        self.mutated = prep.workload.mutates
        inputs = {key: value for key, value in prep.inputs.items() if key not in prep.workload.frozen}
        self.held, self.next = clone(inputs), clone(inputs)
        self.cache = torch.ones(FLUSH_ELEMENTS if prep.device.type == "cpu" else 1, device=prep.device)
        self.drawing_s = _seconds(self._draw)
        self._new(prep.inputs)

    def trio(self, name: str, timed_us: Callable[[str], float]) -> Trio:
        """Each arm: a call, a copy of all inputs in one direction or another, a flush, and the call that counts."""
        inputs = self.prep.variants[name].inputs
        self._draw()
        arms = {"untouched_us": self._untouched, "same_us": self._same, "new_us": self._new}
        times = {}
        for arm in random.sample(list(arms), len(arms)):
            self._put(inputs, self.held, self.mutated)
            timed_us(name)
            arms[arm](inputs)
            self.cache.sum()
            times[arm] = timed_us(name)
        return Trio(**times)

    def _untouched(self, inputs: "Inputs") -> None:
        self._put(inputs, self.held, self.mutated)  # which the step has written
        rest = [key for key in self.held if key not in self.mutated]
        self._put(self.held, inputs, rest)  # reads as much as the other arms write

    def _same(self, inputs: "Inputs") -> None:
        self._put(inputs, self.held, self.held)

    def _new(self, inputs: "Inputs") -> None:
        self._put(inputs, self.next, self.held)
        self.held, self.next = self.next, self.held

    def _draw(self) -> None:
        [drawn] = self.prep.draw()
        self._put(self.next, drawn, self.next)

    def _put(self, target: "Inputs", source: "Inputs", keys: Iterable[str]) -> None:
        for key in keys:
            self.overwrite(target[key], source[key], key)
