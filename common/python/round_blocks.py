"""How many blocks a round has, by the time that its first one took, and by what all so far say of noise and places."""

import math
from collections.abc import Sequence

from common.python import schedule
from common.python.results import Block, ClockName
from common.python.roster import CONTROL
from common.python.statistics import noise, placed


def blocks_by(
    blocks: Sequence[Block], baseline: str, clock: ClockName, budget_s: float, first_s: float, beside_s: float
) -> int:
    """Of the round whose first block, the last of those taken so far, took `first_s`, by what all say of the noise.

    `beside_s` is what each round has taken beside its samples, but for the first one. That is not known in the first:
    it is taken to be as much as a block at least. End to end baseline and control differ where the host is busy for
    longer than a sample, and more blocks are what helps against that.
    """
    later, most = later_s(blocks[-1], first_s, clock), math.inf
    if clock == "device":
        apart = placed(blocks, baseline, CONTROL, clock)
        most = schedule.worth(noise(blocks, clock), apart, max(beside_s + first_s - later, later), later)
    return schedule.blocks_in_round(budget_s, first_s, later, beside_s, most)


def later_s(first: Block, first_s: float, clock: ClockName) -> float:
    """What each later block of a round will take, by its first, which has walls and may be alone with a control."""
    again = [s for s in first.samples if s.variant != CONTROL or schedule.has_control(1, clock)]
    return first_s * len(again) / (len(first.samples) + len(first.walls) or 1)
