"""How much a session measures: rounds, blocks in each, and when it is enough. Times in seconds."""

import math
from collections.abc import Mapping

ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS = 8, 3, 16
CLOSING = 2  # last rounds, which all take part in
PRECISE = 0.005  # relative half-width of the interval at which sampling stops
OVERHEAD = 3.0  # preparing, warming up and sampling together may take this many sampling budgets
MOST_BLOCKS = 32  # in a round


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


def blocks_in_round(budget_s: float, block_s: float) -> int:
    """As many as fit into a round's share of the sampling budget, at least one."""
    return max(1, min(MOST_BLOCKS, int(budget_s / ROUNDS / max(block_s, 1e-6))))


def out_of_time(seconds: Mapping[str, float], budget_s: float, cold_s: float = 0.0) -> bool:
    """Whether sampling has used up its budget, or has used three of them with all that it took to prepare it.

    What was prepared before the second round, for `cold_s`, does not count: it compiles, and rounds after it do not.
    """
    spent_s = sum(seconds[phase] for phase in ("prepare", "warm-up", "samples")) - cold_s
    return seconds["samples"] >= budget_s or spent_s >= OVERHEAD * budget_s
