"""How much a session measures: rounds, blocks in each, and when it is enough. Times in seconds."""

import math
from collections.abc import Mapping

TRIALS = 3  # proofs before timing
ENOUGH = 0.25  # of the budget: proving at the timed size begins no further trial beyond it
BUDGET_S = 1.0  # of sampling, by default
QUICK = 0.2  # of the budget, for a first look
ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS = 8, 3, 16
PRECISE = 0.005  # relative half-width of the interval at which sampling stops
OVERHEAD = 0.5  # of the budget: what may be spent beside sampling after the first round
MOST_BLOCKS, FEW_BLOCKS = 32, 4  # in a round
FEW_S = 0.05  # that FEW_BLOCKS may take, however small the budget


def fixed_plan(iterations: int | None) -> list[int] | None:
    """Blocks of each round where `--iterations` fixes the samples of each variant; a block holds two of each."""
    if iterations is None:
        return None
    blocks = (iterations + 1) // 2
    rounds = min(ROUNDS, blocks)
    return [blocks // rounds + (index < blocks % rounds) for index in range(rounds)]


def warm_passes(plan: list[int] | None, warmup: int | None) -> int | None:
    """Each round's share of `--warmup` steps, rounded up; None where no counts were asked for."""
    return None if plan is None else math.ceil((warmup or 0) / len(plan))


def blocks_in_round(budget_s: float, first_s: float, later_s: float, beside_s: float = 0.0) -> int:
    """How many blocks fit into a round's share of the budget, at least one.

    `first_s` is what the round's first block took, with control and walls; `later_s` what others will take; `beside_s`
    what a round spends on preparing, warming up and proving. A budget of 1 s has eight rounds, a smaller one or a large
    `beside_s` fewer, so that rounds are mostly samples. Three rounds use up the budget, hence the half below.
    """
    afforded = 1 + OVERHEAD * budget_s / max(beside_s, 1e-6)
    rounds = max(min(ROUNDS * budget_s, ROUNDS, afforded), FEWEST_ROUNDS - 0.5)
    share_s = max(budget_s / rounds, min(first_s + (FEW_BLOCKS - 1) * later_s, FEW_S))
    fit = 1 + int((share_s - first_s) / max(later_s, 1e-6))
    return max(1, min(MOST_BLOCKS, fit))


def has_control(index: int, clock: str | None) -> bool:
    """Whether block `index` of a round times the control: on the device's clock only the first block does.

    End to end each does, since blocks are discarded while the host is slow, and the first may be one of them.
    """
    return clock != "device" or index == 0


def beside_s(seconds: Mapping[str, float]) -> float:
    """The time spent on the phases that every round has beside its samples."""
    return sum(seconds.get(phase, 0.0) for phase in ("prepare", "warm-up", "proof"))


def out_of_time(seconds: Mapping[str, float], budget_s: float, opened_s: float = 0.0) -> bool:
    """Whether sampling has used up its budget, or the phases beside it half as much.

    `opened_s`, spent beside sampling until the first round had ended, does not count: variants compile in that round.
    """
    return seconds["samples"] >= budget_s or beside_s(seconds) - opened_s >= OVERHEAD * budget_s
