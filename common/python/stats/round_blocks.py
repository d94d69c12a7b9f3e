"""How many blocks a round has, by how long its first one took, and by how noise compares with what addresses do."""

import math

from common.python.base.results import CONTROL, Block, PairResult
from common.python.stats import sampling_plan
from common.python.stats.intervals import noise, placed


def blocks_by(result: PairResult, budget_s: float, first_s: float, beside_s: float) -> int:
    """Blocks of the round whose first one, the last that was taken so far, took `first_s`.

    `beside_s` is what each round has taken beside its samples, but for the first one. That is not known in the first:
    it is taken to be as much as a block at least. End to end baseline and control differ where the host is busy for
    longer than a sample, and more blocks are what helps against that.
    """
    blocks, most = result.blocks, math.inf
    later = later_s(blocks[-1], first_s, result.clock)
    if result.clock == "device":
        apart = placed(blocks, f"baseline_{result.name}", CONTROL, "device")
        most = sampling_plan.worth(noise(blocks, "device"), apart, max(beside_s + first_s - later, later), later)
    return sampling_plan.blocks_in_round(budget_s, first_s, later, beside_s, most)


def later_s(first: Block, first_s: float, clock: str | None) -> float:
    """What each later block of a round will take, by its first, which has walls and may be alone with a control."""
    again = [s for s in first.samples if s.variant != CONTROL or sampling_plan.has_control(1, clock)]
    return first_s * len(again) / (len(first.samples) + len(first.walls) or 1)
