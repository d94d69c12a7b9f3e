"""How many rounds and blocks a session takes, by hand-computed cases."""

import pytest

from common.python.stats.sampling_plan import blocks_in_round, fixed_plan


@pytest.mark.parametrize(
    ("iterations", "plan"),
    [
        (None, None),
        (1, [1]),
        (2, [1]),
        (6, [1, 1, 1]),
        (20, [2, 2, 1, 1, 1, 1, 1, 1]),
        (64, [4] * 8),
    ],
)
def test_a_block_holds_two_samples_of_each_and_rounds_share_the_blocks(
    iterations: int | None, plan: list[int] | None
) -> None:
    assert fixed_plan(iterations) == plan


def test_a_round_takes_its_eighth_of_the_budget_but_a_block_at_least_and_not_hundreds() -> None:
    assert blocks_in_round(budget_s=4.0, first_s=0.1, later_s=0.1) == 5
    assert blocks_in_round(budget_s=4.0, first_s=3.0, later_s=3.0) == 1
    assert blocks_in_round(budget_s=4.0, first_s=1e-4, later_s=1e-4) == 32
    assert blocks_in_round(budget_s=4.0, first_s=0.0, later_s=0.0) == 32


@pytest.mark.parametrize(("budget_s", "blocks", "rounds"), [(0.2, 16, 3), (0.5, 25, 4), (1.0, 25, 8), (4.0, 32, 8)])
def test_a_smaller_budget_has_fewer_rounds_of_which_three_use_it_up(budget_s: float, blocks: int, rounds: int) -> None:
    """Each round prepares, warms up and proves anew."""
    assert blocks_in_round(budget_s, first_s=0.005, later_s=0.005) == blocks
    assert rounds == 8 or rounds * blocks * 0.005 >= budget_s
