"""How much a session measures: rounds, blocks in each, and when it is enough. Times in seconds."""

import math
from collections.abc import Mapping

TRIALS = 3  # proofs before timing
ENOUGH = 0.25  # budgets of proving at the size that is timed, after which none is begun: each round proves it again
BUDGET_S = 1.0  # of sampling, by default
QUICK = 0.2  # of the budget, for a first look
ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS = 8, 3, 16
PRECISE = 0.005  # relative half-width of the interval at which sampling stops
OVERHEAD = 0.5  # budgets of sampling: what may be spent beside it after the first round
MOST_BLOCKS, FEW_BLOCKS = 32, 4  # in a round
FEW_S = 0.05  # that a few may take, however small the budget


def fixed_plan(iterations: int | None) -> list[int] | None:
    """Blocks of each round where the samples of each variant are fixed; a block holds two of each."""
    if iterations is None:
        return None
    blocks = (iterations + 1) // 2
    rounds = min(ROUNDS, blocks)
    return [blocks // rounds + (index < blocks % rounds) for index in range(rounds)]


def warm_passes(plan: list[int] | None, warmup: int | None) -> int | None:
    """Each round's share of the warm-up steps that were asked for, rounded up."""
    return None if plan is None else math.ceil((warmup or 0) / len(plan))


def blocks_in_round(budget_s: float, first_s: float, later_s: float, beside_s: float = 0.0) -> int:
    """As many as fit into a round's share of the sampling budget, at least one; the first also has control and walls.

    A budget of a second is spent in ROUNDS of them, half of one in half as many, and less in FEWEST_ROUNDS, whose
    share is a bit more than a third, so that they use it up: each has to prepare, to warm up and to prove. Where that
    takes `beside_s`, so that there will be fewer rounds, these share it. A few blocks there are also where the share
    is small, as long as they take no longer than FEW_S: one in a round that prepared and warmed up for ten would spend
    the time on everything but samples.
    """
    fewest = FEWEST_ROUNDS - 0.5
    afforded = 1 + OVERHEAD * budget_s / max(beside_s, 1e-6)
    rounds = max(min(ROUNDS * budget_s, ROUNDS, afforded), fewest)
    share_s = max(budget_s / rounds, min(first_s + (FEW_BLOCKS - 1) * later_s, FEW_S))
    fit = 1 + int((share_s - first_s) / max(later_s, 1e-6))
    return max(1, min(MOST_BLOCKS, fit))


def has_control(index: int, clock: str | None) -> bool:
    """Whether the block of this index in its round times the control: on the device's clock the first one does.

    End to end each does: there blocks are left out while the host is slow, and a round's only one with a control may be
    one of them.
    """
    return clock != "device" or index == 0


def beside_s(seconds: Mapping[str, float]) -> float:
    """What has been spent on the phases that every round has beside its samples."""
    return sum(seconds.get(phase, 0.0) for phase in ("prepare", "warm-up", "proof"))


def out_of_time(seconds: Mapping[str, float], budget_s: float, opened_s: float = 0.0) -> bool:
    """Whether sampling has used up its budget, or what goes beside it in every round half as much.

    What was spent there until the first round had ended, `opened_s`, does not count: variants compile in it, are
    proven at two sizes and warm up, and no further round is quicker for having fewer of them.
    """
    return seconds["samples"] >= budget_s or beside_s(seconds) - opened_s >= OVERHEAD * budget_s
