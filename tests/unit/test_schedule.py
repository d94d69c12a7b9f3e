"""How many rounds and blocks a session takes, by hand-computed cases."""

import pytest

from common.python.stats.sampling_plan import blocks_in_round, fixed_plan, has_control, out_of_time, warm_passes


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


def test_the_control_is_in_a_rounds_first_block_and_on_the_devices_clock_in_no_other() -> None:
    assert [has_control(index, "device") for index in range(4)] == [True, False, False, False]
    assert all(has_control(index, "end_to_end") for index in range(5))


def test_warm_up_steps_are_shared_out_over_the_rounds() -> None:
    assert warm_passes(None, 5) is None
    assert warm_passes([1, 1, 1], 5) == 2
    assert warm_passes([1, 1, 1], 0) == 0
    assert warm_passes([1, 1, 1], None) == 0


def test_a_round_takes_its_eighth_of_the_budget_but_a_block_at_least_and_not_hundreds() -> None:
    assert blocks_in_round(budget_s=4.0, first_s=0.1, later_s=0.1) == 5
    assert blocks_in_round(budget_s=4.0, first_s=3.0, later_s=3.0) == 1
    assert blocks_in_round(budget_s=4.0, first_s=1e-4, later_s=1e-4) == 32
    assert blocks_in_round(budget_s=4.0, first_s=0.0, later_s=0.0) == 32


@pytest.mark.parametrize(
    ("beside_s", "blocks"),
    [
        (0.01, 5),  # of 8 rounds
        (0.125, 8),  # half a budget of 1 s is spent beside 4 rounds, the first is not counted
        (0.25, 13),
        (0.3, 15),  # of three at least, whose share is a bit more than a third
        (9.0, 16),
    ],
)
def test_where_preparing_and_proving_leave_time_for_fewer_rounds_these_share_the_budget(
    beside_s: float, blocks: int
) -> None:
    assert blocks_in_round(1.0, first_s=0.024, later_s=0.024, beside_s=beside_s) == blocks


@pytest.mark.parametrize(("block_s", "blocks"), [(0.001, 20), (0.01, 4), (0.0124, 4), (0.015, 3), (0.03, 1), (0.2, 1)])
def test_a_round_of_a_small_budget_takes_a_few_blocks_for_no_longer_than_a_twentieth_of_a_second(
    block_s: float, blocks: int
) -> None:
    assert blocks_in_round(budget_s=0.05, first_s=block_s, later_s=block_s) == blocks


@pytest.mark.parametrize(("budget_s", "blocks", "rounds"), [(0.2, 16, 3), (0.5, 25, 4), (1.0, 25, 8), (4.0, 32, 8)])
def test_a_smaller_budget_has_fewer_rounds_of_which_three_use_it_up(budget_s: float, blocks: int, rounds: int) -> None:
    """Each round prepares, warms up and proves anew."""
    assert blocks_in_round(budget_s, first_s=0.005, later_s=0.005) == blocks
    assert rounds == 8 or rounds * blocks * 0.005 >= budget_s


@pytest.mark.parametrize(
    ("seconds", "late"),
    [
        ({"prepare": 0.5, "warm-up": 0.5, "proof": 0.4, "samples": 2.9}, False),
        ({"samples": 3.0}, True),
        ({"prepare": 0.5, "warm-up": 0.5, "proof": 0.5, "samples": 1.0}, True),
        ({"start": 9.0, "why": 9.0, "writing": 9.0, "samples": 1.0}, False),
    ],
)
def test_time_is_up_after_a_budget_of_samples_or_half_as_much_beside_them(
    seconds: dict[str, float], late: bool
) -> None:
    assert out_of_time(seconds, 3.0) is late


def test_what_was_spent_until_the_first_round_had_ended_takes_no_time_from_sampling() -> None:
    seconds = {"prepare": 40.0, "warm-up": 3.0, "proof": 2.0, "samples": 1.0}
    assert out_of_time(seconds, 3.0)
    assert not out_of_time(seconds, 3.0, opened_s=44.0)
    assert out_of_time(seconds, 3.0, opened_s=43.5)
